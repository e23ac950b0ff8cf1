"""docs/findings.md: every fault there has its reproducer, with which 0.32.0 breaks its rule."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from schedfuzz.corpus import codec
from schedfuzz.corpus.rules import RULES
from schedfuzz.workers.build import ensure
from schedfuzz.workers.home import Home
from schedfuzz.workers.process import TargetProcess
from schedfuzz.workers.targets import Runner, Target

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "findings.md").read_text()
RELEASE = "0.32.0"


class Fault(NamedTuple):
    """A row of the page's table: its number, the rule or exception, who plays, and the file."""

    number: str
    rule: str
    runner: str
    file: Path


def faults() -> Iterator[Fault]:
    row = re.compile(r"^\| (\w+) \| .* \| `([\w-]+)` \| (.*) \| \[([\w-]+)\]\((.*?)\) \|", re.M)
    for number, rule, releases, name, link in row.findall(PAGE):
        assert link == f"findings/{name}.json"
        runner = "real" if releases.endswith("real runner") else "simulated"
        yield Fault(number, rule, runner, DOCS / link)


FAULTS = list(faults())
BLOCKS = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_table_names_every_reproducer_once() -> None:
    named = [fault.file for fault in FAULTS]
    assert sorted(named) == sorted((DOCS / "findings").iterdir())
    assert len({fault.number for fault in FAULTS}) == len(FAULTS)


def test_the_page_shows_every_reproducer_as_it_is() -> None:
    assert [fault.file.read_text() for fault in FAULTS] == BLOCKS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.file.stem)
def test_a_reproducer_is_a_scenario_and_stands_under_its_fault(fault: Fault) -> None:
    assert codec.load(fault.file).requests
    assert fault.file.name.split("-")[0].lstrip("0") == fault.number
    section = PAGE.split(f"\n## {fault.number.rstrip('b')}. ")[1].split("\n## ")[0]
    kind = RULES[fault.rule][0] if fault.rule in RULES else "crash"
    assert f"`{kind}` / `{fault.rule}`" in section
    assert fault.file.read_text() in section


@pytest.mark.vllm
@pytest.mark.parametrize("runner", ["simulated", "real"])
def test_the_release_breaks_each_rule(shared_home: Home, tmp_path: Path, runner: Runner) -> None:
    environment = ensure(RELEASE, shared_home, print)
    target = Target(RELEASE, runner=runner)
    process = TargetProcess(target, environment, tmp_path / "log", coverage=False)
    faults = [fault for fault in FAULTS if fault.runner == runner]
    broken = {}
    try:
        process.spawn()
        process.wait_ready()
        for fault in faults:
            process.submit(codec.load(fault.file))
            trace = process.collect()
            broken[fault.file.stem] = trace.violations[0].rule if trace.violations else ""
    finally:
        process.stop()
    assert broken == {fault.file.stem: fault.rule for fault in faults}
