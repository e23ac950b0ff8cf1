"""Nouns: corpus folder, case, item.

`pytest --schedfuzz-corpus DIR` runs each scenario in DIR as a test that no rule is broken.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schedfuzz.corpus import case as case_file
from schedfuzz.corpus.case import Case
from schedfuzz.corpus.errors import InfraError, InputError

OPTION = "--schedfuzz-corpus"


class Broken(Exception):
    """A rule is broken; `args` are lines that say which."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's options."""
    group = parser.getgroup("schedfuzz")
    group.addoption(
        OPTION,
        action="append",
        default=[],
        metavar="DIR",
        help="Run the scenarios (*.json) in DIR on the installed vLLM's scheduler.",
    )
    group.addoption(
        "--schedfuzz-runner",
        choices=["simulated", "real"],
        default=None,
        help="What plays the model (default: what the case says, else simulated).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest collect the folders, and nothing else unless that was named too."""
    folders = config.getoption(OPTION)
    for folder in folders:
        if not Path(folder).is_dir():
            raise pytest.UsageError(f"{OPTION} {folder}: no such directory")
    if folders:
        named = config.args_source == config.ArgsSource.ARGS
        config.args = [*(config.args if named else []), *folders]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return a collector for a case of one of the folders."""
    folders = [Path(folder).resolve() for folder in parent.config.getoption(OPTION)]
    if file_path.suffix != ".json" or not any(f in file_path.resolve().parents for f in folders):
        return None
    return CaseFile.from_parent(parent, path=file_path)


class CaseFile(pytest.File):
    """One file with one case."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield its case. Raises CollectError for what is none."""
        try:
            case = case_file.load(self.path)
            case.story(str(self.path))
        except InputError as error:
            raise self.CollectError(str(error)) from None
        yield CaseItem.from_parent(self, name=self.path.stem, case=case)


class CaseItem(pytest.Item):
    """A case as a test: passed when no rule is broken, skipped where it cannot be played."""

    def __init__(self, *, case: Case, **options: Any) -> None:
        super().__init__(**options)
        self.case = case
        if case.xfail:
            self.add_marker(pytest.mark.xfail(reason=case.xfail, raises=Broken, strict=False))

    def runtest(self) -> None:
        """Play the case. Raises Broken."""
        from schedfuzz.plugin import driver

        runner = self.config.getoption("--schedfuzz-runner") or self.case.runner
        trace = driver.play(self.case.story(str(self.path)), runner)
        if trace.outcome == "unsupported":
            pytest.skip(f"this vLLM does not have {trace.reason}")
        if trace.outcome == "infra":
            raise InfraError(f"the scenario could not be run: {trace.reason}")
        if trace.violations:
            raise Broken(*driver.broken(trace))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the broken rules; what is no broken rule as pytest shows it."""
        if isinstance(excinfo.value, Broken):
            known = f"{self.case.title}\n" if self.case.title else ""
            return known + "\n".join(map(str, excinfo.value.args))
        if isinstance(excinfo.value, InfraError | InputError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return where the case stands, and its name."""
        return self.path, None, self.name
