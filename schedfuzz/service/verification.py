"""Nouns: verification.

Plain pytest runs the drafts in both targets' own environments, side by side, once for any number of
files: importing vLLM costs more than all of them.
"""

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import schedfuzz
from schedfuzz.corpus.errors import InfraError
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.main import die_with_parent

PYTEST_SECONDS = 900
Outcomes = dict[str, str]


def run_on_both(
    files: Sequence[Path], pair: Pair, by_test: bool = False
) -> tuple[Outcomes, Outcomes]:  # fmt: skip
    """Return, for before and after, each file's outcome by stem: passed, failed, or what else.

    `by_test` tells the outcomes by the names of the tests instead.

    The files share one directory. Raises InfraError when pytest does not end.
    """
    sides = [
        _Side(files, pair.before.environment, "before"),
        _Side(files, pair.after.environment, "after"),
    ]
    try:
        one, two = (side.outcomes(by_test) for side in sides)
    finally:
        for side in sides:
            side.end()
    return one, two


class _Side:
    def __init__(self, files: Sequence[Path], environment: Environment, name: str) -> None:
        self.environment = environment
        self.report = files[0].parent / f"{name}.xml"
        self.process = subprocess.Popen(
            [
                str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider",
                f"--junitxml={self.report}", *map(str, files),
            ],
            env=_variables(environment, files[0].parent), cwd=files[0].parent, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )  # fmt: skip

    def outcomes(self, by_test: bool) -> Outcomes:
        try:
            output, _ = self.process.communicate(timeout=PYTEST_SECONDS)
        except subprocess.TimeoutExpired:
            raise InfraError(
                f"the exported files take over {PYTEST_SECONDS} s on {self.environment.release}; "
                "nothing was written"
            ) from None
        if not self.report.exists():
            last = (output.strip().splitlines() or ["no output"])[-1]
            raise InfraError(f"pytest did not run on {self.environment.release}: {last}")
        found: Outcomes = {}
        for case in ElementTree.parse(self.report).iter("testcase"):
            stem = (case.get("classname") or case.get("name") or "").split(".")[-1]
            found[case.get("name") or stem if by_test else stem] = _outcome(case)
        return found

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _variables(environment: Environment, folder: Path) -> dict[str, str]:
    """Return the variables of a run that finds schedfuzz, and nothing of what is beside it."""
    link = folder / "schedfuzz"
    if not link.is_symlink():
        link.symlink_to(Path(schedfuzz.__file__).resolve().parent)
    variables = environment.variables()
    path = (variables.get("PYTHONPATH"), str(folder))
    return variables | {"PYTHONPATH": os.pathsep.join(filter(None, path))}


def _outcome(case: ElementTree.Element) -> str:
    for tag, word in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        child = case.find(tag)
        if child is not None:
            message = " ".join((child.get("message") or "").split())[:120]
            return word if word == "failed" else f"{word}: {message}"
    return "passed"
