"""Nouns: part.

A side of the runner that only some engines have (a KV connector, an encoder, prompt logprobs).
The runner calls every part at the same points of a step, so a part needs no place in its code.
"""

from typing import Any

from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target.rows import Row
from schedfuzz.workers.target.state import State


class Part:
    """Hooks of one step, in this order; each may stay as it is."""

    def join(self, core: Any) -> None:
        """Meet the EngineCore that was just made, once, before its first step."""

    def arrive(self, request: Any) -> None:
        """See one of vLLM's Requests just before it is added to the engine."""

    def begin(self, output: Any) -> None:
        """See a scheduler output once states and block tables are up to date, before the forward.

        Called for steps without tokens too.
        """

    def attend(self, state: State, start: int, end: int) -> None:
        """See one request's share, positions start..end-1, before the forward."""

    def excuses(self, row: Row) -> bool:
        """Return whether a row may read foreign content in its context."""
        return False

    def end(self, output: Any, samples: dict[str, list[int]]) -> dict[str, Any]:
        """Return fields for vLLM's ModelRunnerOutput, after sampling (empty steps too)."""
        return {}

    def reset_encoder_cache(self) -> None:
        """See that the engine had the workers give up all encoder outputs, between two steps."""

    def settled(self) -> None:
        """See the engine after each of its steps, when outputs were taken over too."""

    def may_fail(self, number: int) -> bool:
        """Return whether a request may end in an error because the scenario says so."""
        return False

    def holds_back(self, request: Any) -> bool:
        """Return whether something of this part may keep vLLM's waiting request from admission."""
        return False

    def awaited(self) -> bool:
        """Return whether the world outside the scheduler still owes something: no starvation."""
        return False

    def left(self) -> Violation | None:
        """Return what is left over when all requests are gone."""
        return None
