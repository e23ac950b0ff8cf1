"""Nouns: fairness, running order, queue order.

Who is served before whom. A scheduler may leave a request out for many good reasons, so only those
are judged for which none can hold: plain requests, with budget left, while a later one was served.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

from schedfuzz.corpus.events import ThrottlePrefills
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Engine, Request, Scenario
from schedfuzz.corpus.sizing import extra_slots
from schedfuzz.corpus.trace import Violation
from schedfuzz.workers.target.progress import queues

WAITING = ("WAITING", "PREEMPTED")


class _Seen(NamedTuple):
    """What stood where before a step: ids that could go on, in running order; the queue's."""

    running: list[tuple[str, bool]]
    queue: list[Any]


class Fairness:
    """Watches one run: `before_step` precedes vLLM's schedule, `after_schedule` sees its output."""

    def __init__(self, scenario: Scenario, scheduler: Any) -> None:
        self.engine = scenario.engine
        self.scheduler = scheduler
        self.requests = {str(request.id): request for request in scenario.requests}
        self.watched = _plain_engine(scenario.engine)
        self.throttled = any(isinstance(event, ThrottlePrefills) for event in scenario.events)
        self.seen = _Seen([], [])

    def before_step(self) -> None:
        """Look at the running requests and the queue before the scheduler does."""
        if not self.watched:
            return
        running = [(r.request_id, self._could_go_on(r)) for r in self.scheduler.running]
        # Of several that were overtaken, the queue proper's first is blamed.
        queued = chain.from_iterable(reversed(queues(self.scheduler)))
        queue = [r for r in queued if self._could_be_admitted(r)]
        self.seen = _Seen(running, queue)

    def after_schedule(
        self, step: int, shares: dict[str, int], preempted: tuple[int, ...], admitted: list[str]
    ) -> Violation | None:
        """Return who was passed over in this scheduler output."""
        if not self.watched:
            return None
        gone = {str(number) for number in preempted}
        return self._skipped(step, shares, gone) or self._overtaken(step, gone, admitted)

    # -- running requests ------------------------------------------------------------------------

    def _could_go_on(self, request: Any) -> bool:
        """Return whether a running request has at least one token that can be scheduled."""
        placeholders = getattr(request, "num_output_placeholders", 0)
        total = request.num_tokens + placeholders
        if placeholders and total + 1 >= request.num_prompt_tokens + request.max_tokens:
            return False  # its last token may be in flight
        if request.num_computed_tokens + 1 >= self.engine.max_model_len - 1:
            return False
        if self.throttled and getattr(request, "is_prefill_chunk", True):
            return False
        if self.requests[request.request_id].structured is not None:
            return False
        return bool(request.num_tokens_with_spec + placeholders > request.num_computed_tokens)

    def _skipped(self, step: int, shares: dict[str, int], gone: set[str]) -> Violation | None:
        """Find a running request that got nothing although the scheduler went past it.

        It stops on its way only where the budget ends or where a request preempted itself, and
        such a one stands behind all that were served.
        """
        running = self.seen.running
        last = max((i for i, (name, _) in enumerate(running) if name in shares), default=-1)
        stopped = any(name in gone for name, _ in running[last + 1 :]) or self._left(shares) < 1
        for name, could in running[: last + 1] if stopped else running:
            alive = name in self.scheduler.requests and name not in gone
            if could and alive and name not in shares:
                detail = f"it gets nothing with {self._left(shares)} tokens of budget left"
                return violation("running-skipped", detail, step, int(name), "running")
        return None

    def _left(self, shares: dict[str, int]) -> int:
        """Return the tokens of budget left; none while the scheduler is paused."""
        if not shares:
            return 0
        budget = min(self.engine.max_num_batched_tokens, self.scheduler.max_num_scheduled_tokens)
        return int(budget) - sum(shares.values())

    # -- the queue -------------------------------------------------------------------------------

    def _could_be_admitted(self, request: Any) -> bool:
        if getattr(request, "num_stale_output_tokens", 0) > 0:
            return False
        return request.status.name in WAITING and _plain(self.requests[request.request_id])

    def _overtaken(self, step: int, gone: set[str], admitted: list[str]) -> Violation | None:
        """Find a request left waiting that stands before one that was admitted."""
        taken = [r for r in self.seen.queue if r.request_id in admitted]
        if not taken:
            return None
        rank = self._rank()
        last = max(taken, key=rank)
        for request in self.seen.queue:
            name = request.request_id
            if name in admitted or name in gone or name not in self.scheduler.requests:
                continue
            if rank(request) < rank(last):
                detail = f"request {last.request_id} is admitted before it"
                path = "resumed" if request.num_preemptions else "new"
                return violation("admission-order", detail, step, int(name), path)
        return None

    def _rank(self) -> Callable[[Any], tuple[float, ...]]:
        """Return the key of the policy's order; FCFS puts all preempted requests first, equal."""
        if self.engine.policy == "priority":
            return lambda r: (r.priority, r.arrival_time)
        return lambda r: (0.0, 0.0) if r.num_preemptions else (1.0, r.arrival_time)


def _plain_engine(engine: Engine) -> bool:
    """Return whether nothing of the engine gives reasons of its own to leave a request out."""
    return not (
        engine.connector
        or engine.ec_connector
        or engine.encoder_cache_size
        or engine.groups
        or engine.max_loras
        or engine.pipeline_parallel_size > 1
        or engine.model != "autoregressive"
        or engine.prefill_schedule_interval > 1
        or extra_slots(engine)
    )


def _plain(request: Request) -> bool:
    return not (request.structured or request.turns or request.external)
