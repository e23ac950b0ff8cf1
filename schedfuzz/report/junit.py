"""Nouns: JUnit report.

Findings as test cases, for whatever shows test results: what breaks now is a failure, what after
has mended a pass, a mere difference is skipped.
"""

from collections.abc import Sequence
from typing import NamedTuple

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from schedfuzz import __version__
from schedfuzz.corpus.printable import plain
from schedfuzz.db.finding_lists import PUT_ASIDE
from schedfuzz.report.facts import Facts


class Check(NamedTuple):
    """A test case that is no finding: what was checked, what came out."""

    name: str
    said: str
    failed: bool


def junit(facts: Sequence[Facts], check: Check | None = None) -> str:
    """Return a JUnit XML document with a test case per finding, and one for the check itself."""
    suite = TestSuite("schedfuzz")
    suite.add_property("schedfuzz", __version__)
    if check is not None:
        case = TestCase(check.name, "schedfuzz", 0.0)
        if check.failed:
            case.result = [Failure(plain(check.said), "check")]
        else:
            case.system_out = plain(check.said)
        suite.add_testcase(case)
    for one in facts:
        suite.add_testcase(_case(one))
    document = JUnitXml()
    document.add_testsuite(suite)
    document.update_statistics()
    data: bytes = document.tostring()
    return data.decode()


def _case(facts: Facts) -> TestCase:
    row = facts.row
    case = TestCase(
        plain(f"finding {row.id}: {row.title}"), plain(f"schedfuzz.{row.before}..{row.after}"), 0.0
    )
    said = plain(f"{facts.who}; {facts.rule or row.rule}: {row.detail}")
    if row.status in PUT_ASIDE:
        case.result = [Skipped(f"{row.status}: {said}")]
    elif row.verdict in ("regressed", "both"):
        failure = Failure(said, row.kind)
        failure.text = f"{plain(facts.story)}\nschedfuzz show {row.id}"
        case.result = [failure]
    elif row.verdict == "changed":
        case.result = [Skipped(said)]
    else:
        case.system_out = said
    return case
