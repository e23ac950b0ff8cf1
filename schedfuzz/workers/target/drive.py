"""Nouns: drive, engine step, stimulus.

Plays one scenario on vLLM's own `EngineCore`: its schedule, execute, sample and update loop, batch
queue, draft hand-off and aborts stay real. Time is the count of engine steps; when the engine is
idle, time jumps to the next arrival or event.
"""

import time
from typing import Any

from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.rules import violation
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.tokens import POISON
from schedfuzz.corpus.trace import Kind, Output, Step, Trace, Violation
from schedfuzz.workers.target import engine as seams
from schedfuzz.workers.target.clients import Clients
from schedfuzz.workers.target.delivered import wrong_output
from schedfuzz.workers.target.executor import SimulatedExecutor
from schedfuzz.workers.target.fairness import Fairness
from schedfuzz.workers.target.faults import BrokenRule, Hang, TooLong
from schedfuzz.workers.target.make import make_runner
from schedfuzz.workers.target.outside import Outside
from schedfuzz.workers.target.progress import Progress, free_blocks, queue_head, queues
from schedfuzz.workers.target.seam import Rejected, Unsupported
from schedfuzz.workers.target.where import innermost

# A survivable violation lets the run go on for this many steps, to show what it leads to.
AFTERMATH_STEPS = 8


def run(scenario: Scenario) -> Trace:
    """Run a scenario from a fresh engine and return its trace (without coverage)."""
    try:
        return _made(scenario).play()
    except Rejected as error:
        return Trace("rejected", reason=str(error))
    except Unsupported as error:
        return Trace("unsupported", reason=str(error))
    except TooLong as error:
        return Trace("infra", reason=str(error))


def _made(scenario: Scenario) -> "Drive":
    """Return a fresh engine for a scenario. Raises Rejected for what the release refuses."""
    try:
        Drive.executor.check(scenario)
        return Drive(scenario, seams.vllm_config(scenario.engine))
    except (ValueError, NotImplementedError) as error:
        raise Rejected(seams.first_line(error)) from error


def died(error: BaseException, step: int) -> Violation:
    """Return the crash or hang that an exception stands for."""
    kind: Kind = "hang" if isinstance(error, Hang) else "crash"
    rule = "cpu-limit" if kind == "hang" else plain(type(error).__name__)
    detail = seams.first_line(error) if kind == "crash" else str(error)
    return Violation(kind, rule, detail, step, function=plain(innermost(error)))


class Drive:
    """One engine with one scenario; `play` may be called once.

    `executor` is the class of the process's runner: the simulated one, or the real one's.
    """

    executor: Any = SimulatedExecutor

    def __init__(self, scenario: Scenario, config: Any) -> None:
        from vllm.v1.engine.core import EngineCore

        self.scenario = scenario
        self.runner = make_runner(scenario)
        played = {"scenario_engine": scenario.engine, "drive": self}
        executor = type("ScenarioExecutor", (self.executor,), played)
        self.engine: Any = EngineCore(config, executor, log_stats=False)
        self.scheduler = self.engine.scheduler
        for part in self.runner.parts:
            part.join(self.engine)
        self.progress = Progress(scenario, self.scheduler)
        self.fairness = Fairness(scenario, self.scheduler)
        self.all_blocks = free_blocks(self.scheduler)
        self.clients = Clients(scenario)
        self.outside = Outside(scenario, self.engine, self.clients, self.runner.parts)
        self.steps: list[Step] = []
        self.violations: list[Violation] = self.runner.noted
        self.tokens: dict[int, list[int]] = {request.id: [] for request in scenario.requests}
        self.reasons: dict[int, str] = {}
        self.preemptions: dict[str, int] = {}
        self.began = self.step_began = time.process_time()

    def play(self) -> Trace:
        """Run to the end, or to a fatal violation."""
        try:
            self._loop()
        except BrokenRule as broken:
            self.violations.append(broken.violation)
            self._record(0, [])
        except (MemoryError, Rejected, Unsupported):
            # Not the engine's doing: the machine's fault or this process's limit, or a request
            # that this release does not take.
            raise
        except (Exception, Hang) as error:  # whatever vLLM raises is the finding
            if isinstance(error, Hang) and self._was_moving():
                raise TooLong(
                    f"{error}, and it was still moving at step {self.runner.step}; shorten it"
                ) from None
            found = died(error, self.runner.step)
            self.violations.append(self.engine.model_executor.explained(found))
            self._record(0, [])
        if not self.violations:
            self.violations.extend(self._left_at_end())
        return Trace(
            "violated" if self.violations else "finished",
            tuple(self.steps),
            tuple(
                Output(number, tuple(tokens), self.reasons.get(number))
                for number, tokens in self.tokens.items()
            ),
            tuple(self.violations),
        )

    def _was_moving(self) -> bool:
        """Return whether the step at hand took less of the CPU time than those before it."""
        now = time.process_time()
        return now - self.step_began < self.step_began - self.began

    def _loop(self) -> None:
        step = 0
        aftermath = AFTERMATH_STEPS
        while aftermath:
            self.runner.step = step
            aborted = self.outside.bring(step)
            if not (self.outside.to_come or self._in_flight()):
                self.outside.resume()
            if aborted and not self._has_work():  # of a session between two turns: no step runs
                self.engine.abort_requests(aborted)
                aborted = []
            if not self._has_work():
                if not self.outside.to_come:
                    return
                step = self.outside.next_step()
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
                step = max(step, self.outside.next_step())

    def _idle(self, record: Step) -> bool:
        """Return whether the engine only waits for what the scenario still has to bring."""
        quiet = not record.scheduled and not record.delivered and not self._working()
        return quiet and self.outside.to_come and not self._owed()

    def _owed(self) -> bool:
        """Return whether the world outside the engine still owes it something."""
        return any(part.awaited() for part in self.runner.parts)

    def _judge_progress(self, step: int, record: Step) -> Violation | None:
        tokens = sum(share.tokens for share in record.scheduled)
        to_come = self.outside.to_come
        owed = self._owed() or self.outside.holds_back
        if to_come or owed:
            self.progress.new_stimulus()
        waits = to_come or owed or self._working() or bool(record.finished)
        delivered = bool(record.delivered or record.finished)
        return self.progress.after_step(step, tokens, delivered, waits)

    # -- the engine's state ----------------------------------------------------------------------

    def _in_flight(self) -> bool:
        return bool(self.engine.batch_queue)

    def _working(self) -> bool:
        """Return whether a batch with tokens is in flight; empty batches are queued too."""
        return any(entry[1].total_num_scheduled_tokens for entry in self.engine.batch_queue or ())

    def _has_work(self) -> bool:
        return bool(self.scheduler.has_requests()) or self._in_flight()

    # -- one engine step -------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        self.step_began = time.process_time()
        self.runner.records = []
        self.fairness.before_step()
        outputs, executed = self.engine.step_fn()
        self.engine.post_step(executed)
        for part in self.runner.parts:
            part.settled()
        delivered: list[Any] = []
        for batch in (outputs or {}).values():
            delivered.extend(batch.outputs)
        self._record(step, delivered)

    def execute(self, output: Any) -> None:
        """Run a scheduler output's forward on the simulated runner (called by the executor)."""
        preempted = self._newly_preempted()
        self.runner.execute(output)
        self.preempted = preempted
        shares = output.num_scheduled_tokens
        excused = bool(preempted) or self._owed() or self._held_back()
        excused = excused or self.outside.holds_back
        broken = self.progress.after_schedule(self.runner.step, shares, excused)
        if broken is not None:
            raise BrokenRule(broken)
        admitted = [data.req_id for data in output.scheduled_new_reqs]
        admitted += output.scheduled_cached_reqs.resumed_req_ids
        unfair = self.fairness.after_schedule(self.runner.step, shares, preempted, admitted)
        if unfair is not None:
            self.violations.append(unfair)

    def sample(self, grammar_output: Any) -> tuple[list[str], list[list[int]], dict[str, Any]]:
        """Sample what was executed: ids, their tokens and fields (called by the executor)."""
        sampled = self.runner.sample(grammar_output)
        return list(sampled), list(sampled.values()), self.runner.fields

    def _held_back(self) -> bool:
        """Return whether a part may keep the head of the queue from admission."""
        head = queue_head(self.scheduler) if self.runner.parts else None
        return head is not None and any(part.holds_back(head) for part in self.runner.parts)

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
            if POISON in item.new_token_ids:
                detail = "the client got a token that was computed from KV that failed to load"
                self.violations.append(violation("failed-load-delivered", detail, step, number))
            broken = self.clients.take(step, item)
            if broken is not None:
                self.violations.append(broken)
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
                (*self.outside.happened, *self.runner.happened),
            )  # fmt: skip
        )
        self.preempted = ()
        self.outside.happened = []
        self.runner.happened = []

    def _waiting(self) -> int:
        return sum(map(len, queues(self.scheduler)))

    # -- the end ---------------------------------------------------------------------------------

    def _left_at_end(self) -> list[Violation]:
        """Return the first rule that the state at the end breaks."""
        step = self.runner.step
        left = list(self.scheduler.requests) or self._waiting() or len(self.scheduler.running)
        if left:
            return [violation("requests-left", f"{left} left in the scheduler", step)]
        wrong = wrong_output(self.scenario, self.tokens, self._whole, step)
        if wrong is not None:
            return [wrong]
        missing = self.all_blocks - free_blocks(self.scheduler)
        if missing:
            return [violation("blocks-left", f"{missing} blocks are not free at the end", step)]
        return [found for part in self.runner.parts if (found := part.left()) is not None]

    def _whole(self, number: int) -> bool:
        """Return whether a request must have delivered all of its output."""
        reason = self.reasons.get(number)
        excused = any(part.may_fail(number) for part in self.runner.parts)
        ended = reason is not None and not (reason == "error" and excused)
        return self.clients.owed(number, ended)
