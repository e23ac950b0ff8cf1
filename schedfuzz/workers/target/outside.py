"""Nouns: outside, stimulus.

Everything that reaches the engine from outside at a step: arrivals, further turns of sessions,
aborts, resets, pauses. What a client sends after it left is not sent.
"""

from typing import TYPE_CHECKING, Any

from schedfuzz.corpus.events import Abort, Event, Pause, ResetPrefixCache, Resume, ThrottlePrefills
from schedfuzz.corpus.scenario import Request, Scenario
from schedfuzz.workers.target import engine as seams
from schedfuzz.workers.target.clients import Clients, Input
from schedfuzz.workers.target.part import Part
from schedfuzz.workers.target.seam import Unsupported

if TYPE_CHECKING:
    from vllm.v1.engine.core import EngineCore


class Outside:
    """The world around one engine; `happened` names what it did since the driver took it."""

    def __init__(
        self, scenario: Scenario, core: "EngineCore", clients: Clients, parts: list[Part]
    ) -> None:
        self.engine = scenario.engine
        self.core: Any = core
        self.clients = clients
        self.parts = parts
        self.arrivals = sorted(scenario.requests, key=lambda request: (request.arrival, request.id))
        self.inputs = list(clients.inputs)
        self.events = list(scenario.events)
        self.happened: list[str] = []
        self.paused = False
        self.step = 0
        self.throttled_until = 0
        if any(isinstance(event, ThrottlePrefills) for event in self.events):
            self._take_over_throttling()

    @property
    def to_come(self) -> bool:
        """Whether the scenario still has to bring something."""
        return bool(self.arrivals or self.inputs or self.events)

    @property
    def holds_back(self) -> bool:
        """Whether the scheduler is told not to admit what it could."""
        return self.paused or self.step < self.throttled_until

    def next_step(self) -> int:
        """Return the step of what comes next; `to_come` must hold."""
        times = [request.arrival for request in self.arrivals[:1]]
        return min(times + [item.step for item in (*self.inputs[:1], *self.events[:1])])

    def bring(self, step: int) -> list[str]:
        """Deliver what is due; return the ids to abort while this step executes."""
        self.step = step
        while self.arrivals and self.arrivals[0].arrival <= step:
            request = self.arrivals.pop(0)
            self._send(request, None)
            self.happened.append(f"arrive {request.id}")
        while self.inputs and self.inputs[0].step <= step:
            self._next_input(self.inputs.pop(0))
        in_flight: list[str] = []
        while self.events and self.events[0].step <= step:
            event = self.events.pop(0)
            if isinstance(event, Abort) and event.in_flight:
                in_flight.append(str(event.request))
                self._leave(event.request)
                self.happened.append(f"abort {event.request} in flight")
            else:
                self._apply(event)
        return in_flight

    def resume(self) -> None:
        """Let a paused scheduler go on."""
        if not self.paused:
            return
        self.core.resume_scheduler()
        self.paused = False
        self.happened.append("resume")

    def _send(self, request: Request, tokens: list[int] | None) -> None:
        hasher = self.core.request_block_hasher
        arriving = seams.vllm_request(self.engine, request, hasher, tokens)
        for part in self.parts:
            part.arrive(arriving)
        self.core.add_request(arriving)

    def _next_input(self, item: Input) -> None:
        if self.clients.is_gone(item.number) or not self._lives(item.number):
            return
        self._send(item.request, item.tokens)
        what = "turn" if item.request.turns else "close"
        self.happened.append(f"{what} {item.number}")

    def _lives(self, number: int) -> bool:
        return str(number) in self.core.scheduler.requests

    def _leave(self, number: int) -> None:
        if self._lives(number):
            self.clients.leave(number)

    def _apply(self, event: Event) -> None:
        match event:
            case Abort():
                self._leave(event.request)
                self.core.abort_requests([str(event.request)])
                self.happened.append(f"abort {event.request}")
            case ResetPrefixCache():
                preempts = event.preempt_running and not self._pinned()
                self.core.reset_prefix_cache(reset_running_requests=preempts)
                self.happened.append("reset" + (" preempting" if preempts else ""))
            case Pause():
                self._pause(event)
            case Resume():
                self.resume()
            case ThrottlePrefills():
                self.throttled_until = max(self.throttled_until, event.step + event.steps)
                self.happened.append(f"throttle {event.steps}")

    def _pause(self, event: Pause) -> None:
        """Pause as an engine in the client's own process does: at once, whatever is in flight."""
        if event.mode == "abort":
            for name in list(self.core.scheduler.requests):
                self.clients.leave(int(name))
        clears = event.clear_cache and not self._pinned(event.mode == "abort")
        self.core.pause_scheduler(mode=event.mode, clear_cache=clears)
        self.paused = True
        self.happened.append(f"pause {event.mode}" + (" clearing" if clears else ""))

    def _pinned(self, all_aborted: bool = False) -> bool:
        """Return whether blocks are held that preempting what runs would not free.

        A KV connector's are, and those of a session between two turns. vLLM refuses a reset that
        preempts then, by an exception that says it is not supported yet.
        """
        connected = self.engine.connector is not None
        if not connected and (all_aborted or not self.clients.sessions):
            return False
        manager, running = self.core.scheduler.kv_cache_manager, self.core.scheduler.running
        others = [r.request_id for r in self.core.scheduler.requests.values() if r not in running]
        flying = connected and bool(self.core.batch_queue)
        return flying or any(any(manager.get_block_ids(name)) for name in others)

    def _take_over_throttling(self) -> None:
        """Answer for data parallelism, which asks to hold prefills back on some steps."""
        if not hasattr(self.core, "_should_throttle_prefills"):
            raise Unsupported("events.ThrottlePrefills")
        self.core._should_throttle_prefills = lambda: self.step < self.throttled_until
