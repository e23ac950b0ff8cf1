"""Nouns: zygote, worker.

The zygote imports vLLM once and forks workers that run scenarios: a new worker costs milliseconds,
so recycling, crashes and kills are cheap, and no scenario can spoil the imported vLLM.
"""

import contextlib
import ctypes
import gc
import mmap
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Literal

import msgspec

from schedfuzz.corpus.codec import decode
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.workers.target import wire
from schedfuzz.workers.target.faults import Hang
from schedfuzz.workers.target.instrument import CoverageMap, install, load_transform
from schedfuzz.workers.target.seam_scheduler import use_scheduler

PR_SET_PDEATHSIG = 1
WARM_UP_FACTOR = 10  # the first engine imports what later ones find imported

# Two requests of one family, with and without what the lazily filled caches depend on.
WARM_UP = (
    '{"engine":{"max_model_len":66,"block_size":32,"num_blocks":12%s},"requests":['
    '{"id":0,"prompt":{"length":33},"max_tokens":4},'
    '{"id":1,"prompt":{"length":33},"max_tokens":4,"arrival":3}]}'
)


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """The command line of a target process, as JSON in argv[1]."""

    parent: int
    coverage: bool = True
    transform: tuple[str, str] | None = None
    scheduler: tuple[str, str] | None = None
    runner: Literal["simulated", "real"] = "simulated"
    recycle_runs: int = 5000
    recycle_bytes: int = 2 << 30
    cpu_seconds: float = 20.0


def main() -> None:
    """Run the zygote until its jobs end or its supervisor is gone."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    die_with_parent(settings.parent)
    data_out = take_output()
    coverage = CoverageMap()
    try:
        transform = None
        if settings.transform is not None:
            transform = load_transform(Path(settings.transform[0]), settings.transform[1])
        install(coverage if settings.coverage else None, transform)
        if settings.scheduler is not None:
            use_scheduler(*settings.scheduler)
        version = _warm_up(settings)
    except Exception as error:
        wire.send(data_out, wire.Failed(f"{type(error).__name__}: {error}"[:500]))
        raise
    wire.send(data_out, wire.Hello(version, coverage.sites, coverage.where))
    gc.collect()
    gc.freeze()
    while _fork_worker(settings, coverage, data_out):
        pass


def _warm_up(settings: Settings) -> str:
    import vllm

    from schedfuzz.workers.target import engine as seams

    seams.quiet()
    signal.signal(signal.SIGPROF, raise_hang)
    if settings.runner == "real":
        _play_for_real()
    for extra in ("", ',"async_scheduling":true', ',"num_speculative_tokens":1'):
        trace = limited(decode(WARM_UP % extra), WARM_UP_FACTOR * settings.cpu_seconds)
        if trace.outcome == "rejected":
            raise RuntimeError(f"the warm-up scenario was rejected: {trace.reason}")
    return str(vllm.__version__)


def _play_for_real() -> None:
    from schedfuzz.workers.target.drive import Drive
    from schedfuzz.workers.target.real.prepare import prepare

    Drive.executor = prepare()


def _fork_worker(settings: Settings, coverage: CoverageMap, data_out: int) -> bool:
    """Run one worker to its end; return whether another one is wanted."""
    zygote = os.getpid()
    job = CurrentJob()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent(zygote)
            status = Worker(settings, coverage, data_out, job).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    wire.send(data_out, wire.WorkerUp(pid))
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == wire.EXIT_END_OF_JOBS:
        return False
    wire.send(data_out, wire.WorkerGone(pid, status, job.number))
    return True


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
            if trace.outcome == "infra":
                break  # whatever it left behind goes with the worker
            if count % 64 == 0 and _resident_bytes() - base > self.settings.recycle_bytes:
                break
        return wire.EXIT_RECYCLE

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


def take_output() -> int:
    """Return the descriptor of standard output for our answers; what vLLM prints goes to the log.

    A process that ends at once loses what is buffered, and its fork would write it once more.
    """
    data_out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return data_out


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, whatever kills that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


def raise_hang(signum: int, frame: Any) -> None:
    """Be the handler of SIGPROF. Raises Hang."""
    raise Hang("the scenario used up its CPU time")


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def limit_address_space(extra: int) -> None:
    """Turn runaway allocation into MemoryError instead of the machine's out-of-memory killer."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + extra, resource.RLIM_INFINITY))
