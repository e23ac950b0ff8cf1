"""Nouns: zygote, warm-up.

The zygote imports vLLM once and forks workers that run scenarios: a new worker costs milliseconds,
so recycling, crashes and kills are cheap, and no scenario can spoil the imported vLLM.
"""

import contextlib
import ctypes
import gc
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.codec import decode
from schedfuzz.workers.target import wire
from schedfuzz.workers.target.faults import Hang
from schedfuzz.workers.target.instrument import CoverageMap, install, load_transform
from schedfuzz.workers.target.real import device
from schedfuzz.workers.target.real.repetition import do_once
from schedfuzz.workers.target.seam_scheduler import use_scheduler
from schedfuzz.workers.target.serving import CurrentJob, Settings, Worker, limited, starts_cuda

PR_SET_PDEATHSIG = 1
WARM_UP_FACTOR = 10  # the first engine imports what later ones find imported

# Two requests of one family, with and without what the lazily filled caches depend on.
WARM_UP = (
    '{"engine":{"max_model_len":66,"block_size":32,"num_blocks":12%s},"requests":['
    '{"id":0,"prompt":{"length":33},"max_tokens":4},'
    '{"id":1,"prompt":{"length":33},"max_tokens":4,"arrival":3}]}'
)


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
        install(coverage if settings.coverage else None, transform, settings.cover)
        if settings.scheduler is not None:
            use_scheduler(*settings.scheduler)
        version = _prepare(settings)
        if not starts_cuda(settings):
            _warm_up(settings)
    except Exception as error:
        wire.send(data_out, wire.Failed(f"{type(error).__name__}: {error}"[:500]))
        raise
    wire.send(data_out, wire.Hello(version, coverage.sites, coverage.where))
    gc.collect()
    gc.freeze()
    while _fork_worker(settings, coverage, data_out):
        pass


def _prepare(settings: Settings) -> str:
    """Import vLLM, choose the runner, and return the version."""
    if settings.runner == "real":
        device.settle()
    import vllm

    from schedfuzz.workers.target import engine as seams

    seams.quiet()
    signal.signal(signal.SIGPROF, raise_hang)
    if settings.runner == "real":
        _play_for_real(settings)
    return str(vllm.__version__)


def _play_for_real(settings: Settings) -> None:
    from schedfuzz.workers.target.drive import Drive
    from schedfuzz.workers.target.real.prepare import prepare

    executor = prepare(settings.control)
    if not settings.limits:
        executor.check = staticmethod(lambda scenario: None)
    if device.on_gpu():
        _warm_up(settings)  # what the scheduler imports, on the simulated runner
        device.check_cold()
    Drive.executor = executor


def _warm_up(settings: Settings) -> None:
    """Run what imports and fills what later scenarios find imported and filled."""
    for extra in ("", ',"async_scheduling":true', ',"num_speculative_tokens":1'):
        trace = limited(decode(WARM_UP % extra), WARM_UP_FACTOR * settings.cpu_seconds)
        if trace.outcome == "rejected":
            raise RuntimeError(f"the warm-up scenario was rejected: {trace.reason}")


def _fork_worker(settings: Settings, coverage: CoverageMap, data_out: int) -> bool:
    """Run one worker to its end; return whether another one is wanted."""
    zygote = os.getpid()
    job = CurrentJob()
    warm, tell_warm = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent(zygote)
            if starts_cuda(settings):
                do_once()
                _warm_up(settings)
            os.write(tell_warm, b"1")
            status = Worker(settings, coverage, data_out, job).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(tell_warm)
    is_warm = bool(os.read(warm, 1))
    os.close(warm)
    if not is_warm:
        os.waitpid(pid, 0)
        wire.send(data_out, wire.Failed("its worker ended before it could take a scenario"))
        return False
    wire.send(data_out, wire.WorkerUp(pid))
    _, status = os.waitpid(pid, 0)
    regular = os.WIFEXITED(status) and os.WEXITSTATUS(status) == wire.EXIT_END_OF_JOBS
    if regular and not job.number:  # vLLM may end a process with any code
        return False
    wire.send(data_out, wire.WorkerGone(pid, status, job.number))
    return True


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
