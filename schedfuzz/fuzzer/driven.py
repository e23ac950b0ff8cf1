"""Nouns: driven case.

The pytest form of what has no story in vLLM's own words: a scenario that schedfuzz's driver plays
beside vLLM. A broken rule fails it; a divergence pins what the side before did where they part.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2

from schedfuzz.corpus import codec
from schedfuzz.corpus.printable import plain
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.fuzzer.judge import first_difference
from schedfuzz.fuzzer.told import told

WIDTH = 88
MAX_NAME = 60


@dataclass(frozen=True)
class Driven:
    """A finding to be told by the driver; `real` is whether the real runner plays it."""

    scenario: Scenario
    verdict: Verdict
    before: Trace
    after: Trace
    real: bool = False

    @property
    def name(self) -> str:
        """Return the name of its test, without `test_`."""
        words = re.sub(r"[^a-z0-9]+", "_", self.verdict.title.lower()).strip("_") or "finding"
        return f"{words[:MAX_NAME].strip('_')}_{self.verdict.fingerprint[:8]}"


def driven_text(docstring: str, cases: Sequence[Driven]) -> str:
    """Return a pytest file with these cases; `docstring` is safe text, its lines broken."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("schedfuzz.fuzzer"), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False,
    )  # fmt: skip
    template = environment.get_template("driven_case.py.j2")
    return template.render(docstring=docstring, cases=_contexts(cases))


def _contexts(cases: Sequence[Driven]) -> list[dict[str, Any]]:
    """Return what the template says of each case; one fingerprint may come from several pairs."""
    found = []
    times: dict[str, int] = {}
    for case in cases:
        number = times[case.name] = times.get(case.name, 0) + 1
        found.append(_context(case, f"_{number}" if number > 1 else ""))
    return found


def _context(case: Driven, mark: str) -> dict[str, Any]:
    step = None
    if case.verdict.verdict == "changed" and case.verdict.rule.startswith("schedule:"):
        parting = first_difference(case.before, case.after)
        step = parting.position if parting else None
    pinned = told(case.before, step) if case.verdict.verdict == "changed" else ""
    title = plain(case.verdict.title).encode("ascii", "backslashreplace").decode()
    return {
        "title": title[: WIDTH - 2],
        "constant": f"SCENARIO_{case.verdict.fingerprint[:8].upper()}{mark}",
        "name": case.name + mark,
        "real": case.real,
        "scenario": _literal(json.dumps(json.loads(codec.encode(case.scenario)), indent=2)),
        "pinned": _literal(pinned) if pinned else "",
        "step": "" if step is None else f", step={step}",
    }


def _literal(text: str) -> str:
    """Return an ASCII text as a literal of several lines.

    JSON never holds three quotes in a row, and what it escapes stays as it is in a raw string.
    """
    quotes = '"' * 3
    return f"{'r' * (chr(92) in text)}{quotes}{text}{quotes}"
