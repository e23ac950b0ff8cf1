"""Nouns: binding: where a model runner keeps the order of its batch and its latest drafts.

The two generations of vLLM's runner differ in exactly this: the first has one batch that lasts, in
whose rows the requests stay; the second makes a batch for each step, sorted anew, and keeps
requests in slots.
"""

from collections.abc import Sequence
from typing import Any

Drafts = dict[str, list[int]]  # by the request's id


class V1Binding:
    """`v1/worker/gpu_model_runner.py`."""

    def __init__(self, runner: Any) -> None:
        self.runner = runner

    def batch(self) -> Sequence[str]:
        """Return the ids of the batch's requests in the order of its rows."""
        ids: Sequence[str] = self.runner.input_batch.req_ids
        return ids

    def drafts(self) -> Drafts:
        """Return what the drafter last proposed for each request of the batch."""
        drafts = getattr(self.runner, "_draft_token_ids", None)
        if drafts is None:
            return {}
        rows = drafts if isinstance(drafts, list) else drafts.tolist()
        return dict(zip(self.batch(), map(list, rows), strict=False))


class V2Binding:
    """`v1/worker/gpu/model_runner.py`."""

    def __init__(self, runner: Any) -> None:
        self.states = runner.req_states
        self.drafting = runner.speculator is not None
        self.ids: list[str] = []
        prepare = runner.prepare_inputs

        def prepare_inputs(*args: Any, **options: Any) -> Any:
            batch = prepare(*args, **options)
            self.ids = list(batch.req_ids)
            return batch

        runner.prepare_inputs = prepare_inputs

    def batch(self) -> Sequence[str]:
        """Return the ids of the step's requests in the order of its rows."""
        return self.ids

    def drafts(self) -> Drafts:
        """Return what the drafter last proposed for each request of the step."""
        if not self.drafting:
            return {}
        slots = {req_id: slot for req_id in self.ids
                 if (slot := self.states.req_id_to_index.get(req_id)) is not None}  # fmt: skip
        rows = self.states.draft_tokens[list(slots.values())].tolist()
        return dict(zip(slots, rows, strict=True))


def bind(runner: Any) -> V1Binding | V2Binding:
    """Return the binding of a worker's model runner."""
    return V2Binding(runner) if hasattr(runner, "req_states") else V1Binding(runner)
