"""Nouns: exporting.

A case leaves the house only after plain pytest has run it in both targets' environments and it
failed where it must and passed where it must.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.db import writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.driven import Driven, driven_text
from schedfuzz.fuzzer.export import Case, build_case
from schedfuzz.fuzzer.judge import judge
from schedfuzz.service.verification import run_on_both
from schedfuzz.workers.home import write_file
from schedfuzz.workers.pair import Pair

# verdict -> what pytest must say on before and after
EXPECTED = {
    "fixed": ("failed", "passed"),
    "regressed": ("passed", "failed"),
    "both": ("failed", "failed"),
    "changed": ("passed", "failed"),  # what before did is pinned
}
CURE = "export a finding of two releases"
TOGETHER = "test_schedfuzz_findings.py"
Result = tuple[Finding, Path | InputError | InfraError]


def refusal(finding: Finding) -> str:
    """Return why a finding cannot leave, as far as its row tells; "" for no reason."""
    names = finding.before, finding.after
    if any("+" in name for name in names):
        return f"plain pytest cannot run a transformed release; {CURE}"
    if finding.verdict != "both" and len({_release(name) for name in names}) == 1:
        return f"plain pytest runs the same scheduler on both sides; {CURE}"
    try:
        _scenario(finding)
    except InputError as error:
        return str(error)
    return ""


def export_findings(
    store: Store, pair: Pair, rows: Sequence[Finding], folder: Path, say: Callable[[str], None]
) -> Iterator[Result]:
    """Build, verify and write the findings' pytest files; yield each path, or why there is none.

    An InputError stands for a finding without a pytest form, an InfraError for one that could not
    be verified. Raises InfraError when pytest itself cannot run.
    """
    cases: dict[int, Case] = {}
    for row in rows:
        try:
            cases[row.id] = _build(row, pair)
        except (InputError, InfraError) as error:
            yield row, error
    known = [row for row in rows if row.id in cases]
    said = _verified(known, cases, pair, say)
    # A story that does not show on vLLM's own terms what the driver shows is told by the driver.
    unlike = [
        row for row in known
        if said[row.id] != EXPECTED[row.verdict] and not cases[row.id].driven
    ]  # fmt: skip
    for row in unlike:
        cases[row.id] = _build(row, pair, driven=True)
    said |= _verified(unlike, cases, pair, say)
    for row in known:
        yield row, _write(store, row, cases[row.id], said[row.id], folder)


def export_together(
    pair: Pair, rows: Sequence[Finding], folder: Path, say: Callable[[str], None]
) -> Path:  # fmt: skip
    """Write one file with a test for each finding of the pair, for the driver; return its path.

    Raises InputError for a finding that cannot leave, InfraError when a test does not fail and pass
    where it must.
    """
    cases = [_driven(row, pair) for row in rows]
    names = f"{pair.before.target.name} and {pair.after.target.name}"
    path = folder / TOGETHER
    path.write_text(driven_text(f"{len(cases)} findings on vLLM {names}.", cases))
    say(f"verifying {len(cases)} tests in one file on {names} …")
    before, after = run_on_both([path], pair, by_test=True)
    wrong = [
        f"finding {row.id} has {' and '.join(said)}"
        for row, case in zip(rows, cases, strict=True)
        if (said := tuple(side.get(f"test_{case.name}", "not run") for side in (before, after)))
        != EXPECTED[row.verdict]
    ]
    if wrong:
        path.unlink()
        raise InfraError(f"{'; '.join(wrong)} on {names}; nothing was written")
    return path


def _verified(
    rows: Sequence[Finding], cases: Mapping[int, Case], pair: Pair, say: Callable[[str], None]
) -> dict[int, tuple[str, ...]]:
    """Return, per finding, what pytest says of its file on before and after."""
    if not rows:
        return {}
    with tempfile.TemporaryDirectory(prefix="schedfuzz-export-") as scratch:
        drafts = {row.id: Path(scratch) / cases[row.id].filename for row in rows}
        for number, draft in drafts.items():
            draft.write_text(cases[number].text)
        names = f"{pair.before.target.name} and {pair.after.target.name}"
        say(f"verifying {len(drafts)} exported files on {names} …")
        sides = run_on_both(list(drafts.values()), pair)
    return {
        number: tuple(side.get(draft.stem, "not run") for side in sides)
        for number, draft in drafts.items()
    }


def _scenario(finding: Finding) -> Scenario:
    return codec.decode(finding.reproducer.data, "its reproducer")


def _release(name: str) -> str:
    return re.split("[:@]", name)[0]


def _driven(finding: Finding, pair: Pair) -> Driven:
    scenario, verdict, traces = _played(finding, pair)
    real = pair.before.target.runner == "real"
    return Driven(scenario, verdict, *traces, real)


def _build(finding: Finding, pair: Pair, driven: bool = False) -> Case:
    scenario, verdict, traces = _played(finding, pair)
    names = pair.before.target.name, pair.after.target.name
    return build_case(scenario, verdict, names, *traces, driven=driven)


def _played(finding: Finding, pair: Pair) -> tuple[Scenario, Verdict, tuple[Trace, Trace]]:
    """Run a finding's reproducer. Raises InfraError when that says something else now."""
    if reason := refusal(finding):
        raise InputError(reason)
    scenario = _scenario(finding)
    traces = pair.run(scenario)
    verdict = judge(*traces)
    if verdict.fingerprint != finding.verdict_fingerprint:
        raise InfraError(
            f"finding {finding.id}: its reproducer now says {verdict.verdict}; "
            f"try `schedfuzz replay {finding.id} {finding.before} {finding.after}`"
        )
    return scenario, verdict, traces


def _write(
    store: Store, finding: Finding, case: Case, said: tuple[str, ...], folder: Path
) -> Path | InfraError:
    wanted = EXPECTED[finding.verdict]
    if said != wanted:
        return InfraError(
            f"finding {finding.id}: its pytest file must have {' and '.join(wanted)} on "
            f"{finding.before} and {finding.after}, but {' and '.join(said)}; it was not written"
        )
    path = folder / case.filename
    write_file(path, case.text)
    writes.record_export(store, finding.id, str(path.absolute()))
    return path
