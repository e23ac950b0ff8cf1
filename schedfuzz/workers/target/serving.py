"""Nouns: settings, worker, current job.

A worker answers jobs until it is recycled. One that a real engine was stopped in the middle of is
never used again: what vLLM keeps in its modules is then in no known state.
"""

import mmap
import resource
import signal
import traceback
from typing import Literal

import msgspec

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.workers.target import wire
from schedfuzz.workers.target.faults import Hang
from schedfuzz.workers.target.instrument import CoverageMap
from schedfuzz.workers.target.real import device

GPU_BYTES = 1 << 29  # the tiny model and a runner's buffers take some 50 MB


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """The command line of a target process, as JSON in argv[1].

    `cover` names modules whose code is sites too. `limits` and `control` are for the real runner:
    what it cannot play is refused, and an ordinary model goes along beside the checkable one.
    """

    parent: int
    coverage: bool = True
    cover: tuple[str, ...] = ()
    transform: tuple[str, str] | None = None
    scheduler: tuple[str, str] | None = None
    runner: Literal["simulated", "real"] = "simulated"
    limits: bool = True
    control: bool = False
    recycle_runs: int = 5000
    recycle_bytes: int = 2 << 30
    cpu_seconds: float = 20.0


def starts_cuda(settings: Settings) -> bool:
    """Return whether playing a scenario starts CUDA, which only a worker may do."""
    return settings.runner == "real" and device.on_gpu()


class CurrentJob:
    """The number of the job that a worker runs, 0 between two; its zygote can read it too."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8)

    @property
    def number(self) -> int:
        """Return the number."""
        return int.from_bytes(self._shared[:8], "little")

    @number.setter
    def number(self, value: int) -> None:
        self._shared[:8] = value.to_bytes(8, "little")


class Worker:
    """Reads jobs from standard input and answers each with its trace."""

    def __init__(
        self, settings: Settings, coverage: CoverageMap, data_out: int, current: CurrentJob
    ) -> None:
        self.settings = settings
        self.coverage = coverage
        self.data_out = data_out
        self.current = current

    def serve(self) -> int:
        """Answer jobs until the input ends or it is time to be recycled; return the exit code."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
        base = _resident_bytes()
        if not starts_cuda(self.settings):  # CUDA reserves addresses by the terabyte
            limit_address_space(2 * self.settings.recycle_bytes)
        for count in range(1, self.settings.recycle_runs + 1):
            try:
                job = wire.receive(0)
            except (ValueError, msgspec.MsgspecError):
                return wire.EXIT_BROKEN_FRAME  # a worker killed while it read one
            if not isinstance(job, wire.Job):
                return wire.EXIT_END_OF_JOBS
            self.current.number = job.number
            trace = self._run(job)
            wire.send(self.data_out, wire.Ran(job.number, trace))
            self.current.number = 0
            if trace.outcome == "infra" or self._stopped_inside(trace):
                break  # whatever it left behind goes with the worker
            if count % 64 == 0 and self._grown(base):
                break
        return wire.EXIT_RECYCLE

    def _stopped_inside(self, trace: Trace) -> bool:
        """Return whether the real runner may have been left in the middle of something."""
        if self.settings.runner == "simulated":
            return False
        crashed = any(found.kind in ("crash", "hang") for found in trace.violations)
        return crashed or trace.outcome == "rejected"

    def _grown(self, base: int) -> bool:
        if _resident_bytes() - base > self.settings.recycle_bytes:
            return True
        return self.settings.runner == "real" and device.reserved_bytes() > GPU_BYTES

    def _run(self, job: wire.Job) -> Trace:
        from schedfuzz.workers.target.drive import died

        self.coverage.clear()
        try:
            trace = limited(job.scenario, self.settings.cpu_seconds)
        except MemoryError:
            return Trace("infra", reason="out of memory")
        except Hang:
            return Trace("infra", reason="the CPU limit struck outside an engine step")
        except Exception as error:  # the engine could not even be made
            traceback.print_exc()
            trace = Trace("violated", violations=(died(error, 0),))
        if job.coverage and self.settings.coverage:
            return msgspec.structs.replace(trace, coverage=self.coverage.snapshot())
        return trace


def limited(scenario: Scenario, cpu_seconds: float) -> Trace:
    """Run a scenario; beyond its CPU time the handler of SIGPROF is called."""
    from schedfuzz.workers.target.drive import run

    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        return run(scenario)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def limit_address_space(extra: int) -> None:
    """Turn runaway allocation into MemoryError instead of the machine's out-of-memory killer."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + extra, resource.RLIM_INFINITY))
