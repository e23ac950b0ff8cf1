"""Nouns: structured part, tracked request.

Gives vLLM's StructuredOutputManager its backend, and watches the one thing that ties scheduler and
grammar together: a grammar has been fed exactly what its request delivered.
"""

from typing import TYPE_CHECKING, Any

from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Request
from schedfuzz.corpus.tokens import allowed, grammar_start
from schedfuzz.workers.target.part import Part

if TYPE_CHECKING:
    from schedfuzz.workers.target.runner import SimulatedRunner


class Structured(Part):
    """The grammars of one engine; `runner` has the scenario's requests and the current step."""

    def __init__(self, runner: "SimulatedRunner") -> None:
        self.runner = runner
        self.tracked: dict[str, Any] = {}
        self.pending: list[Any] = []

    def join(self, core: Any) -> None:
        from schedfuzz.workers.target.grammars import ReasoningStub

        self.manager = core.structured_output_manager
        self.manager.backend = self._backend()
        self.manager.tokenizer = None
        self.manager.executor = self  # what vLLM submits compilations to
        if self.runner.engine.reasoning:
            self.manager.reasoner_cls = ReasoningStub

    def _backend(self) -> Any:
        requests = self.runner.requests
        if self.runner.engine.grammar_backend == "xgrammar":
            from schedfuzz.workers.target.xgrammar_backend import RealBackend

            return RealBackend(self.manager.vllm_config, requests)
        from schedfuzz.workers.target.grammars import StubBackend

        return StubBackend(requests)

    def arrive(self, request: Any) -> None:
        if request.use_structured_output:
            self.manager.grammar_init(request)
            self.tracked[request.request_id] = request

    def submit(self, create: Any, request: Any) -> Any:
        """Return the future of a compilation, as an executor would."""
        from schedfuzz.workers.target.grammars import Compiling

        runner = self.runner
        script = runner.requests[request.request_id].structured
        assert script is not None
        due = runner.step + script.compile_steps
        compiling = Compiling(create(request), due, script.fails, lambda: runner.step)
        self.pending.append(compiling)
        return compiling

    def shutdown(self, *args: Any, **kwargs: Any) -> None:
        """End as an executor does."""

    def settled(self) -> None:
        for req_id, request in list(self.tracked.items()):
            ours = self.runner.requests[req_id]
            problem = self._problem(ours, request)
            if problem is not None:
                rule, detail = problem
                found = violation(rule, detail, self.runner.step, ours.id)
                self.runner.noted.append(found)
            if problem is not None or request.is_finished():
                del self.tracked[req_id]

    def _problem(self, ours: Request, request: Any) -> tuple[str, str] | None:
        """Return the rule that a request's delivered tokens break, with what happened."""
        script = ours.structured
        if script is None or script.fails:
            return None
        tokens = list(request.output_token_ids)[grammar_start(ours) :]
        for count, token in enumerate(tokens):
            if not allowed(ours, count) >> token & 1:
                return "grammar", f"token {count} of its grammar's is {token}, which it forbids"
        excused = ours.external or any(part.may_fail(ours.id) for part in self.runner.parts)
        if request.status.name == "FINISHED_ERROR" and not excused:
            return "grammar", f"it ended in error after {len(tokens)} tokens of its grammar"
        grammar = request.structured_output_request.grammar
        fed = _fed(grammar)
        if fed not in (tokens, len(tokens)):
            return "grammar-state", f"its grammar was fed {fed}, it delivered {tokens}"
        return None

    def awaited(self) -> bool:
        step = self.runner.step
        self.pending = [compiling for compiling in self.pending if compiling.due > step]
        return bool(self.pending)


def _fed(grammar: Any) -> list[int] | int:
    """Return what a grammar has accepted, or how many tokens (xgrammar's does not say which)."""
    if grammar is None:
        return []
    count = getattr(grammar, "num_processed_tokens", None)
    return list(grammar.accepted) if count is None else int(count)
