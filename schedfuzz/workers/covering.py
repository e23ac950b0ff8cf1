"""Nouns: covered run, figures.

Supervises a covered run (`schedfuzz/workers/target/covered.py`): it leads a process group of its
own, which never outlives the call, and its reports are read only once it has ended well.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import trim_log
from schedfuzz.workers.target.covered import Played
from schedfuzz.workers.zygote import BOOT


class Figures(msgspec.Struct):
    """coverage.py's figures of one file, or of all; `percent_covered` counts branches too."""

    num_statements: int
    covered_lines: int
    num_branches: int
    covered_branches: int
    percent_covered: float


class _Measured(msgspec.Struct):
    summary: Figures


class Report(msgspec.Struct):
    """What matters here of coverage.py's JSON report; files by their path from `vllm/` on."""

    files: dict[str, _Measured]
    totals: Figures


def measure(
    environment: Environment, scenarios: Iterable[Scenario], html: Path, title: str, log: Path,
    hear: Callable[[Played], None],
) -> Report:  # fmt: skip
    """Play scenarios under coverage.py, write its HTML report to `html` and return its figures.

    `hear` is called every few seconds, and once the engine is imported. Raises InfraError.
    """
    trim_log(log)
    with tempfile.TemporaryDirectory(prefix="schedfuzz-") as name:
        work = Path(name)
        (work / "data").mkdir()
        lines = b"\n".join(map(codec.encode, scenarios))
        (work / "scenarios").write_bytes(lines)
        settings = {
            "parent": os.getpid(), "scenarios": str(work / "scenarios"), "title": title,
            "data": str(work / "data"), "html": str(html.absolute()),
            "report": str(work / "report.json"),
        }  # fmt: skip
        with log.open("ab") as output:
            status = _run(environment, json.dumps(settings), output.fileno(), hear)
        if status:
            raise InfraError(
                f"{environment.release}: the covered run ended with {status}; see {log}"
            )
        return msgspec.json.decode((work / "report.json").read_bytes(), type=Report)


def _run(
    environment: Environment, settings: str, errors: int, hear: Callable[[Played], None]
) -> int:
    child = subprocess.Popen(
        [str(environment.python), str(BOOT), settings, "covered"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        env=environment.variables(), start_new_session=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        for line in child.stdout:
            hear(msgspec.json.decode(line, type=Played))
        return child.wait()
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
