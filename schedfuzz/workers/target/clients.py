"""Nouns: client, turn, what a client is owed.

What reaches a client besides the right tokens: each turn of a session ends where it should and for
the right reason, logprobs come exactly when they were asked for and belong to their tokens, a
pooling model answers the whole prompt.
"""

from typing import Any, NamedTuple

from msgspec.structs import replace

from schedfuzz.corpus.outputs import Spoken, conversation, loops, turn_tokens, turn_views
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine, Request, Scenario
from schedfuzz.corpus.tokens import STOP, extend_digests, prompt_tokens, seed_of
from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target.logprobs import Teller, rows_of

NATURAL = ("stop", "length", "repetition")
Broken = tuple[str, str]  # a rule and what broke it


class Input(NamedTuple):
    """A session's next input, due before `step`: a request with its tokens, or its end."""

    step: int
    number: int
    request: Request
    tokens: list[int]


def inputs(request: Request) -> list[Input]:
    """Return what the client of a session sends after its first input, in order."""
    found = [
        Input(view.arrival, request.id, view, turn_tokens(request, index))
        for index, view in enumerate(turn_views(request))
        if index
    ]
    if request.turns:
        # vLLM's own client ends a session with a dummy prompt that is not resumable.
        found.append(Input(request.turns[-1].step, request.id, replace(request, turns=()), [0]))
    return found


class Client:
    """The client of one request."""

    def __init__(self, request: Request, engine: Engine) -> None:
        self.request = request
        self.engine = engine
        self.views = turn_views(request) if request.turns else [request]
        self.spoken: list[Spoken] = []
        if request.turns:
            self.spoken = conversation(request, engine.max_model_len)
        self.turn = 0
        self.got: list[int] = []
        self.teller: Teller | None = None
        self.left = False

    def take(self, item: Any) -> Broken | None:
        """See vLLM's EngineCoreOutput; return the first rule that it breaks, and how."""
        view = self.views[min(self.turn, len(self.views) - 1)]
        first = len(self.got)
        self.got.extend(item.new_token_ids)
        broken = None
        if self.spoken:
            broken = self._turn(item)
        if view.logprobs or item.new_logprobs is not None:
            broken = broken or self._logprobs(view, item, first)
        if view.prompt_logprobs or item.new_prompt_logprobs_tensors is not None:
            broken = broken or self._prompt_logprobs(view, item, first)
        if item.finish_reason is not None:
            broken = broken or self._finish(str(item.finish_reason), item)
            self.turn += 1
            self.got = []
            self.teller = None
        return broken

    def _turn(self, item: Any) -> Broken | None:
        if self.turn >= len(self.spoken):
            return None  # beyond max_model_len, where another rule holds
        want, got = self.spoken[self.turn].tokens, self.got
        for index, (one, other) in enumerate(zip(got, want, strict=False)):
            if one != other:
                detail = f"turn {self.turn} differs from its own continuation at token {index}"
                return "output", detail
        ended = str(item.finish_reason) in NATURAL
        if len(got) > len(want) or (ended and len(got) < len(want)):
            return "turn-length", f"turn {self.turn} got {len(got)} tokens, not {len(want)}"
        return None

    def _logprobs(self, view: Request, item: Any, first: int) -> Broken | None:
        tokens, found = item.new_token_ids, item.new_logprobs
        if not tokens:
            return None
        if found is None:
            return "logprobs", f"turn {self.turn} asked for logprobs, its token {first} has none"
        if not view.logprobs:
            return "logprobs", f"turn {self.turn} did not ask for logprobs, token {first} has some"
        rows = rows_of(found.logprob_token_ids, found.logprobs)
        if len(rows) != len(tokens):
            return "logprobs", f"{len(rows)} rows for {len(tokens)} tokens from token {first}"
        prompt = self._prompt()
        if prompt is None:
            return None
        self.teller = self.teller or Teller(view, prompt)
        for index, (row, want) in enumerate(zip(rows, self.teller.tell(tokens), strict=True)):
            if not row.is_like(want):
                return "logprobs", f"token {first + index} has the row ({row}), not ({want})"
        return None

    def _prompt(self) -> list[int] | None:
        """Return the turn's prompt, None beyond max_model_len."""
        if not self.spoken:
            return prompt_tokens(self.request)
        return self.spoken[self.turn].prompt if self.turn < len(self.spoken) else None

    def _prompt_logprobs(self, view: Request, item: Any, first: int) -> Broken | None:
        found = item.new_prompt_logprobs_tensors
        if found is None:
            missing = bool(item.new_token_ids) and not first
            return ("prompt-logprobs", "the first output came without them") if missing else None
        if not view.prompt_logprobs:
            return "prompt-logprobs", "nobody asked for them"
        if first:
            return "prompt-logprobs", f"they came with token {first}"
        want = Teller(view, prompt_tokens(self.request)).tell_prompt()
        rows = rows_of(found.logprob_token_ids, found.logprobs)
        if len(rows) != len(want):
            return "prompt-logprobs", f"{len(rows)} rows for {len(want)} tokens after the first"
        pairs = enumerate(zip(rows, want, strict=True), 1)
        wrong = [(at, row, other) for at, (row, other) in pairs if not row.is_like(other)]
        if wrong:
            at, row, other = wrong[0]
            detail = f"{len(wrong)} are not its own; position {at} has ({row}), not ({other})"
            return "prompt-logprobs", detail
        return None

    def _finish(self, reason: str, item: Any) -> Broken | None:
        if self.engine.model == "pooling":
            return self._pooled(reason, item)
        if reason in NATURAL and self.request.structured is None:
            want = "stop" if self.got and self.got[-1] == STOP else self._spent()
            if reason != want:
                return "finish-reason", f"turn {self.turn} ended by {reason}, not {want}"
        return None

    def _spent(self) -> str:
        """Return why a turn without a stop token ends: it goes round in circles, or all is said."""
        view = self.views[min(self.turn, len(self.views) - 1)]
        prompt = self._prompt()
        room = 0 if prompt is None else self.engine.max_model_len - len(prompt)
        short = len(self.got) < min(view.max_tokens, room)
        return "repetition" if short and loops(view, self.got) else "length"

    def _pooled(self, reason: str, item: Any) -> Broken | None:
        if reason != "stop":
            return None
        digests: list[int] = []
        extend_digests(digests, prompt_tokens(self.request), seed_of(self.request.lora))
        found = item.pooling_output
        if found is None or found.tolist() != [digests[-1]]:
            what = "no answer" if found is None else "the answer to another prompt"
            return "pooled", f"it finished with {what}"
        return None


class Clients:
    """All clients of a scenario; `inputs` are what their sessions still have to send."""

    def __init__(self, scenario: Scenario) -> None:
        self._clients = {
            request.id: Client(request, scenario.engine) for request in scenario.requests
        }
        self.inputs = [item for request in scenario.requests for item in inputs(request)]
        self.inputs.sort(key=lambda item: item.step)
        self.sessions = bool(self.inputs)

    def take(self, step: int, item: Any) -> Violation | None:
        """See one of vLLM's outputs; return the violation it is, if any."""
        number = int(item.request_id)
        broken = self._clients[number].take(item)
        return None if broken is None else violation(*broken, step, number)

    def leave(self, number: int) -> None:
        """Let a client go: it sends nothing more and is owed nothing more."""
        self._clients[number].left = True

    def is_gone(self, number: int) -> bool:
        """Return whether a client has left."""
        return self._clients[number].left

    def owed(self, number: int, finished: bool) -> bool:
        """Return whether a request must have delivered all its tokens."""
        client = self._clients[number]
        return not client.left if client.spoken else finished
