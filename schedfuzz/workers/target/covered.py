"""Nouns: covered run, batch, played scenarios.

Replays scenarios under coverage.py. The scheduler is imported plain, after coverage.py has started,
and scenarios run in forked children that save as they go: a scenario that ends its process costs
what was not saved yet, which the next child plays again without it.
"""

import gc
import importlib.util
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from schedfuzz.corpus.codec import decode
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.target.faults import Hang
from schedfuzz.workers.target.main import die_with_parent, raise_hang, take_output
from schedfuzz.workers.target.serving import CurrentJob, limit_address_space, limited

SCHEDULER = Path("vllm", "v1", "core")
SAVE_SECONDS = 2.0
BATCH = 1000  # scenarios a child, so that what leaks goes with it
MEMORY_BYTES = 4 << 30
WALL_FACTOR = 5  # times the CPU limit: only what that limit cannot reach runs into this one


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """The command line of a covered run, as JSON in argv[1]; all paths are absolute.

    `scenarios` is a file of canonical JSON, a line each; `data` an empty directory for coverage.py.
    Written at the end: the HTML report in `html` and coverage.py's JSON report in `report`.
    """

    parent: int
    scenarios: str
    data: str
    html: str
    report: str
    title: str
    cpu_seconds: float = 100.0  # coverage.py makes a run three to seven times slower


class Played(msgspec.Struct):
    """A line on standard output: how many scenarios ended in each outcome since the last one.

    The outcomes are those of a trace, and `lost`: it ended its process, `reason` says how.
    """

    outcomes: dict[str, int]
    reason: str = ""


def main() -> None:
    """Play every scenario, then write both reports."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    die_with_parent(settings.parent)
    out = take_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides
    scenarios = [decode(line) for line in Path(settings.scenarios).read_bytes().splitlines()]
    os.chdir(_packages())  # so that both reports name the files from `vllm/` on
    measured = _coverage(settings, data_suffix=True)
    measured.start()
    _import_engine()
    measured.save()
    _say(out, Played({}))
    signal.signal(signal.SIGPROF, raise_hang)
    gc.collect()
    gc.freeze()
    while scenarios:
        scenarios = batch(scenarios, measured, out, settings.cpu_seconds)
    measured.stop()
    _report(settings)


def _packages() -> Path:
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise RuntimeError("vLLM is not installed here")
    return Path(spec.origin).parents[1]


def _coverage(settings: Settings, **options: Any) -> Any:
    from coverage import Coverage

    data = str(Path(settings.data, "coverage"))
    source = [str(Path.cwd() / SCHEDULER)]
    return Coverage(data_file=data, branch=True, source=source, config_file=False, **options)


def _import_engine() -> None:
    import vllm.engine.arg_utils
    import vllm.v1.engine.core  # noqa: F401

    from schedfuzz.workers.target import drive, engine  # noqa: F401

    engine.quiet()


def _report(settings: Settings) -> None:
    combined = _coverage(settings)
    combined.combine([settings.data])
    combined.json_report(outfile=settings.report)
    combined.html_report(directory=settings.html, title=settings.title)


def batch(
    scenarios: Sequence[Scenario], measured: Any, out: int, cpu_seconds: float
) -> list[Scenario]:
    """Play scenarios in a forked child; return those left to play, fewer than there were.

    Reports on `out`. Raises RuntimeError when the child failed outside of any scenario.
    """
    here = os.getpid()
    current, saved = CurrentJob(), CurrentJob()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent(here)
            _play(scenarios[:BATCH], measured, out, cpu_seconds, current, saved)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = list(scenarios[saved.number :])
    if code == 0:
        return left
    if current.number == 0:
        raise RuntimeError(f"the covered child ended with {code} between two scenarios")
    how = f"exit code {code}" if code > 0 else f"signal {-code} ({signal.strsignal(-code)})"
    _say(out, Played({"lost": 1}, f"a scenario ended its process: {how}"))
    del left[current.number - saved.number - 1]
    return left


def _play(
    scenarios: Sequence[Scenario],
    measured: Any,
    out: int,
    cpu_seconds: float,
    current: CurrentJob,
    saved: CurrentJob,
) -> None:
    """Play scenarios until all are, or one may have left something behind."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel's, so it also ends native loops
    limit_address_space(MEMORY_BYTES)
    outcomes: dict[str, int] = {}
    last = time.monotonic()
    for number, scenario in enumerate(scenarios, 1):
        current.number = number
        signal.alarm(int(WALL_FACTOR * cpu_seconds) + 1)
        outcome = play(scenario, cpu_seconds)
        signal.alarm(0)
        current.number = 0
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        spoiled = outcome in ("hang", "infra")
        if spoiled or number == len(scenarios) or time.monotonic() - last >= SAVE_SECONDS:
            measured.save()
            saved.number = number
            _say(out, Played(outcomes))
            outcomes, last = {}, time.monotonic()
        if spoiled:
            return


def play(scenario: Scenario, cpu_seconds: float) -> str:
    """Run one scenario and return its outcome, `hang` when it used up its CPU time."""
    try:
        trace = limited(scenario, cpu_seconds)
    except MemoryError:
        return "infra"
    except Hang:
        return "hang"
    except Exception:  # the engine could not even be made
        traceback.print_exc()
        return "violated"
    if any(violation.kind == "hang" for violation in trace.violations):
        return "hang"
    return trace.outcome


def _say(out: int, played: Played) -> None:
    os.write(out, msgspec.json.encode(played) + b"\n")
