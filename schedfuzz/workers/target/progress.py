"""Nouns: patience, head of the queue, progress.

Starvation is judged from progress, never from a clock: nothing scheduled while something could run
(deadlock), work without output (livelock), or the head of the queue left waiting though everything
it needs is free (passed over).
"""

from itertools import chain
from typing import Any

from schedfuzz.corpus.events import Pause, ResetPrefixCache
from schedfuzz.corpus.fitting import has_group
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.corpus.sizing import blocks_for_all
from schedfuzz.corpus.trace import Violation

DEADLOCK_PATIENCE = 4
CYCLE_PATIENCE = 4


class Progress:
    """Watches one run; `after_schedule` sees every scheduler output, `after_step` every step."""

    def __init__(self, scenario: Scenario, scheduler: Any) -> None:
        self.engine = scenario.engine
        self.scheduler = scheduler
        self.idle_steps = 0
        self.steps_without_output = 0
        self.passed: tuple[str, int] = ("", 0)
        self.seen: dict[tuple[Any, ...], int] = {}
        self.livelock_bound = livelock_bound(scenario)
        self.cycles = CYCLE_PATIENCE + denoising(scenario)  # it does not show in the counts
        self.traits = {request.id: _traits(request) for request in scenario.requests}
        self.draft_slots = draft_slots(scheduler)
        # Stale output of a preempted request drains within the pipeline depth.
        self.patience = 6 + 2 * scenario.engine.async_scheduling

    def after_schedule(self, step: int, shares: dict[str, int], excused: bool) -> Violation | None:
        """Return a passed-over violation once the head of the queue was left too often."""
        head = queue_head(self.scheduler)
        left = self._budget_left(shares)
        if head is None or excused or not self._could_admit(head, left):
            self.passed = ("", 0)
            return None
        count = self.passed[1] + 1 if self.passed[0] == head.request_id else 1
        self.passed = (head.request_id, count)
        if count < self.patience:
            return None
        detail = (
            f"head of the queue for {count} steps with a seat, {left} tokens of budget and "
            f"{free_blocks(self.scheduler)} blocks free"
        )
        path = "resumed" if head.num_preemptions else "new"
        return violation("passed-over", detail, step, int(head.request_id), path)

    def _budget_left(self, shares: dict[str, int]) -> int:
        """Return the tokens left for one more request; drafting takes slots of each request."""
        slots = self.draft_slots * (len(self.scheduler.running) + 1)
        used = sum(shares.values())
        input_left = self.engine.max_num_batched_tokens - used - slots
        return min(input_left, int(self.scheduler.max_num_scheduled_tokens) - used)

    def _could_admit(self, head: Any, budget_left: int) -> bool:
        """Return whether seat, token budget and blocks are free by any release's measure."""
        engine = self.engine
        # A session between two turns keeps its seat.
        parked = getattr(self.scheduler, "num_waiting_for_streaming_input", 0)
        if len(self.scheduler.running) + parked >= (
            engine.max_num_active_seqs or engine.max_num_seqs
        ):
            return False
        if getattr(head, "num_stale_output_tokens", 0) > 0:
            return False
        if head.status.name.startswith("WAITING_FOR_"):
            return False
        width = 1 + max(engine.num_speculative_tokens, engine.canvas_length)
        tokens = width if engine.chunked_prefill else head.num_tokens + width
        if has_group(engine, "mamba"):
            tokens += engine.block_size  # a prefill chunk goes on to a block boundary or not at all
        if budget_left < tokens:
            return False
        length = min(head.num_tokens + 2 * width, engine.max_model_len)
        needed = blocks_for_all(engine, length)
        # Slack for watermarks and lookahead, which differ between releases.
        slack = 2 + engine.num_blocks // 20 + len(self.scheduler.running)
        slack += -(-engine.num_blocks * engine.watermark_percent // 100)
        return free_blocks(self.scheduler) >= needed + slack + self._reserved()

    def _reserved(self) -> int:
        """Return the blocks that running prefills may still need, which no KV load may take."""
        if self.engine.connector is None:
            return 0
        left = (r.num_tokens - r.num_computed_tokens for r in self.scheduler.running)
        return sum(1 + max(0, tokens) // self.engine.block_size for tokens in left)

    def new_stimulus(self) -> None:
        """Say that something still comes from outside, which may end a round."""
        self.seen.clear()

    def after_step(
        self, step: int, tokens: int, delivered: bool, waiting_for_events: bool
    ) -> Violation | None:
        """Return a deadlock or livelock violation when the run makes no progress."""
        if delivered:
            self.steps_without_output = 0
            self.seen.clear()
        elif tokens or not waiting_for_events:
            self.steps_without_output += 1
        self.idle_steps = 0 if tokens or delivered or waiting_for_events else self.idle_steps + 1
        # Empty batches take the pipeline's depth to drain.
        if self.idle_steps >= DEADLOCK_PATIENCE * self.engine.pipeline_parallel_size:
            return self._stuck("deadlock", f"nothing scheduled for {self.idle_steps} steps", step)
        if self._going_round() or self.steps_without_output > self.livelock_bound:
            detail = f"no output for {self.steps_without_output} steps of work"
            return self._stuck("livelock", detail, step)
        return None

    def _going_round(self) -> bool:
        """Return whether the requests came back to one state too often since the last output.

        The scheduler is deterministic: what it did from this state it will do again.
        """
        state = tuple(
            (req_id, request.num_computed_tokens, request.num_tokens, request.status.value)
            for req_id, request in getattr(self.scheduler, "requests", {}).items()
        )
        count = self.seen[state] = self.seen.get(state, 0) + 1
        return bool(state) and count > self.cycles

    def _stuck(self, rule: str, detail: str, step: int) -> Violation:
        """Blame the request that is served next: the queue's head, else a running one."""
        head = queue_head(self.scheduler)
        running = self.scheduler.running
        state = "waiting" if head is not None else "running"
        request = head if head is not None else (running[0] if running else None)
        if request is None:
            return violation(rule, f"{detail}, no request in any queue", step, None, "none")
        if head is not None and head.num_preemptions:
            state = "preempted"
        where = f"{detail}; request {request.request_id} is {state}, {len(running)} running"
        number = int(request.request_id)
        return violation(rule, where, step, number, f"{self.traits.get(number, '')}{state}")


def _traits(request: Request) -> str:
    """Return what kind of request it is, for its starvation is another's business each time."""
    names = {"session": request.turns, "external": request.external, "image": request.images,
             "grammar": request.structured}  # fmt: skip
    return "".join(f"{name} " for name, part in names.items() if part)


def livelock_bound(scenario: Scenario) -> int:
    """Return the steps of work after which some output must have come.

    Twice the steps that it takes to prefill every request once, one at a time, from the start;
    each reset of the prefix cache may undo all of them.
    """
    engine = scenario.engine
    chunk = engine.max_num_batched_tokens
    for limit in (engine.long_prefill_token_threshold, engine.max_num_scheduled_tokens):
        chunk = min(chunk, limit or chunk)
    lengths = (
        min(request.prompt.length + request.max_tokens, engine.max_model_len)
        + sum(turn.length + turn.max_tokens for turn in request.turns)
        for request in scenario.requests
    )
    resets = sum(
        isinstance(event, ResetPrefixCache) or (isinstance(event, Pause) and event.clear_cache)
        for event in scenario.events
    )
    steps = sum(-(-length // chunk) + 1 for length in lengths) + denoising(scenario)
    return 16 + 2 * (1 + resets) * steps


def denoising(scenario: Scenario) -> int:
    """Return the steps in which every request denoises one canvas, one at a time."""
    if scenario.engine.model != "diffusion":
        return 0
    return sum(request.denoise for request in scenario.requests)


def draft_slots(scheduler: Any) -> int:
    """Return the batch slots that drafting adds per request (0 where the release has none)."""
    speculative = scheduler.vllm_config.speculative_config
    return int(getattr(speculative, "max_num_new_slots_for_drafting", 0) or 0)


def queue_head(scheduler: Any) -> Any:
    """Return the request that is next to be admitted, or None.

    One that waits for the outside world is passed by, unless there is no other.
    """
    blocked = None
    for request in chain.from_iterable(queues(scheduler)):
        if not request.status.name.startswith("WAITING_FOR_"):
            return request
        blocked = blocked or request
    return blocked


def queues(scheduler: Any) -> list[Any]:
    """Return the queues that a release has, the one that is served first first."""
    names = ("kv_holding_waiting", "skipped_waiting", "waiting")
    return [getattr(scheduler, name, None) or () for name in names]


def free_blocks(scheduler: Any) -> int:
    """Return the number of free KV blocks of the scheduler's pool."""
    return int(scheduler.kv_cache_manager.block_pool.get_num_free_blocks())
