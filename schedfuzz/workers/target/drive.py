"""Nouns: drive, engine step, stimulus.

Plays one scenario on vLLM's own `EngineCore`: its schedule, execute, sample and update loop, batch
queue, draft hand-off and aborts stay real. Time is the count of engine steps; when the engine is
idle, time jumps to the next arrival or event.
"""

from typing import Any

from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Abort, Event, Scenario
from schedfuzz.corpus.tokens import expected_outputs
from schedfuzz.corpus.trace import Kind, Output, Step, Trace, Violation
from schedfuzz.workers.target import engine as seams
from schedfuzz.workers.target.executor import SimulatedExecutor
from schedfuzz.workers.target.faults import BrokenRule, Hang
from schedfuzz.workers.target.progress import Progress, free_blocks
from schedfuzz.workers.target.runner import SimulatedRunner
from schedfuzz.workers.target.where import innermost

# A survivable violation lets the run go on for this many steps, to show what it leads to.
AFTERMATH_STEPS = 8


def run(scenario: Scenario) -> Trace:
    """Run a scenario from a fresh engine and return its trace (without coverage)."""
    try:
        config = seams.vllm_config(scenario.engine)
        drive = Drive(scenario, config)
    except seams.Rejected as error:
        return Trace("rejected", reason=str(error))
    except (ValueError, NotImplementedError) as error:
        return Trace("rejected", reason=seams.first_line(error))
    return drive.play()


def died(error: BaseException, step: int) -> Violation:
    """Return the crash or hang that an exception stands for."""
    kind: Kind = "hang" if isinstance(error, Hang) else "crash"
    rule = "cpu-limit" if kind == "hang" else type(error).__name__
    detail = seams.first_line(error) if kind == "crash" else str(error)
    return Violation(kind, rule, detail, step, function=innermost(error))


class Drive:
    """One engine with one scenario; `play` may be called once."""

    def __init__(self, scenario: Scenario, config: Any) -> None:
        from vllm.v1.engine.core import EngineCore

        self.scenario = scenario
        self.runner = SimulatedRunner(scenario.engine)
        self.runner.requests = {str(request.id): request for request in scenario.requests}
        self.engine: Any = EngineCore(config, SimulatedExecutor, log_stats=False)
        self.engine.model_executor.drive = self
        self.scheduler = self.engine.scheduler
        self.progress = Progress(scenario, self.scheduler)
        self.all_blocks = free_blocks(self.scheduler)
        self.arrivals = sorted(scenario.requests, key=lambda request: (request.arrival, request.id))
        self.events = list(scenario.events)
        self.steps: list[Step] = []
        self.violations: list[Violation] = self.runner.noted
        self.tokens: dict[int, list[int]] = {request.id: [] for request in scenario.requests}
        self.reasons: dict[int, str] = {}
        self.preemptions: dict[str, int] = {}
        self.happened: list[str] = []

    def play(self) -> Trace:
        """Run to the end, or to a fatal violation."""
        try:
            self._loop()
        except BrokenRule as broken:
            self.violations.append(broken.violation)
            self._record(0, [])
        except MemoryError:
            raise  # the machine's fault, or this process's limit: never a finding
        except (Exception, Hang) as error:  # whatever vLLM raises is the finding
            self.violations.append(died(error, self.runner.step))
            self._record(0, [])
        if not self.violations:
            self.violations.extend(self._check_end())
        return Trace(
            "violated" if self.violations else "finished",
            tuple(self.steps),
            tuple(
                Output(number, tuple(tokens), self.reasons.get(number))
                for number, tokens in self.tokens.items()
            ),
            tuple(self.violations),
        )

    def _loop(self) -> None:
        step = 0
        aftermath = AFTERMATH_STEPS
        while aftermath:
            self.runner.step = step
            aborted = self._stimuli(step)
            if not self._has_work():
                if not (self.arrivals or self.events):
                    return
                step = self._next_stimulus()
                continue
            if aborted:
                self.engine.aborts_queue.put(aborted)
            before = len(self.steps)
            self._step(step)
            if self.violations:
                aftermath -= 1
            broken = self._judge_progress(step, self.steps[before])
            if broken is not None:
                self.violations.append(broken)
                return
            step += 1
            if self.progress.idle_steps == 0 and self._idle(self.steps[before]):
                step = max(step, self._next_stimulus())

    def _idle(self, record: Step) -> bool:
        """Return whether the engine only waits for what the scenario still has to bring."""
        quiet = not record.scheduled and not record.delivered and not self._working()
        return quiet and bool(self.arrivals or self.events)

    def _judge_progress(self, step: int, record: Step) -> Violation | None:
        tokens = sum(share.tokens for share in record.scheduled)
        to_come = bool(self.arrivals or self.events)
        if to_come:
            self.progress.new_stimulus()
        waits = to_come or self._working() or bool(record.finished)
        return self.progress.after_step(step, tokens, bool(record.delivered), waits)

    # -- what the scenario does to the engine ----------------------------------------------------

    def _stimuli(self, step: int) -> list[str]:
        """Deliver what is due; return the ids to abort while this step executes."""
        in_flight: list[str] = []
        while self.arrivals and self.arrivals[0].arrival <= step:
            request = self.arrivals.pop(0)
            hasher = self.engine.request_block_hasher
            self.engine.add_request(seams.vllm_request(request, hasher))
            self.happened.append(f"arrive {request.id}")
        while self.events and self.events[0].step <= step:
            event = self.events.pop(0)
            if isinstance(event, Abort) and event.in_flight:
                in_flight.append(str(event.request))
                self.happened.append(f"abort {event.request} in flight")
            else:
                self._apply(event)
        return in_flight

    def _apply(self, event: Event) -> None:
        if isinstance(event, Abort):
            self.engine.abort_requests([str(event.request)])
            self.happened.append(f"abort {event.request}")
        else:
            self.engine.reset_prefix_cache(reset_running_requests=event.preempt_running)
            self.happened.append("reset" + (" preempting" if event.preempt_running else ""))

    def _next_stimulus(self) -> int:
        times = [request.arrival for request in self.arrivals[:1]]
        return min(times + [event.step for event in self.events[:1]])

    def _in_flight(self) -> bool:
        return bool(self.engine.batch_queue)

    def _working(self) -> bool:
        """Return whether a batch with tokens is in flight; empty batches are queued too."""
        return any(entry[1].total_num_scheduled_tokens for entry in self.engine.batch_queue or ())

    def _has_work(self) -> bool:
        return bool(self.scheduler.has_requests()) or self._in_flight()

    # -- one engine step -------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        self.runner.records = []
        outputs, executed = self.engine.step_fn()
        self.engine.post_step(executed)
        delivered: list[Any] = []
        for batch in (outputs or {}).values():
            delivered.extend(batch.outputs)
        self._record(step, delivered)

    def execute(self, output: Any) -> tuple[list[str], list[list[int]]]:
        """Run a scheduler output on the simulated runner (called by the executor)."""
        preempted = self._newly_preempted()
        sampled = self.runner.execute(output)
        self.preempted = preempted
        shares = output.num_scheduled_tokens
        broken = self.progress.after_schedule(self.runner.step, shares, bool(preempted))
        if broken is not None:
            raise BrokenRule(broken)
        return list(sampled), list(sampled.values())

    def _newly_preempted(self) -> tuple[int, ...]:
        found = []
        for req_id, request in self.scheduler.requests.items():
            count = request.num_preemptions
            if count > self.preemptions.get(req_id, 0):
                self.preemptions[req_id] = count
                found.append(int(req_id))
        return tuple(found)

    preempted: tuple[int, ...] = ()

    def _record(self, step: int, delivered: list[Any]) -> None:
        finished = []
        counts = []
        for item in delivered:
            number = int(item.request_id)
            self.tokens[number].extend(item.new_token_ids)
            if item.new_token_ids:
                counts.append((number, len(item.new_token_ids)))
            if item.finish_reason is not None:
                finished.append(number)
                self.reasons[number] = str(item.finish_reason)
        self.steps.append(
            Step(
                self.runner.step,
                tuple(self.runner.records),
                self.preempted,
                tuple(finished),
                tuple(counts),
                len(self.scheduler.running),
                self._waiting(),
                free_blocks(self.scheduler),
                tuple(self.happened),
            )  # fmt: skip
        )
        self.preempted = ()
        self.happened = []

    def _waiting(self) -> int:
        skipped = getattr(self.scheduler, "skipped_waiting", ())
        return len(self.scheduler.waiting) + len(skipped)

    # -- the end ---------------------------------------------------------------------------------

    def _check_end(self) -> list[Violation]:
        step = self.runner.step
        expected = expected_outputs(self.scenario)
        for number, tokens in self.tokens.items():
            want = expected[number] if number in self.reasons else expected[number][: len(tokens)]
            if tokens != want:
                at = next((i for i, (a, b) in enumerate(zip(tokens, want, strict=False)) if a != b),
                          min(len(tokens), len(want)))  # fmt: skip
                detail = f"its output differs from its own continuation at token {at}"
                return [violation("output", detail, step, number)]
        left = list(self.scheduler.requests) or self._waiting() or len(self.scheduler.running)
        if left:
            return [violation("requests-left", f"{left} left in the scheduler", step)]
        missing = self.all_blocks - free_blocks(self.scheduler)
        if missing:
            return [violation("blocks-left", f"{missing} blocks are not free at the end", step)]
        return []
