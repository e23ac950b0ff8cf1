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
from schedfuzz.db import writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
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


def _build(finding: Finding, pair: Pair, driven: bool = False) -> Case:
    if reason := refusal(finding):
        raise InputError(reason)
    scenario = _scenario(finding)
    names = pair.before.target.name, pair.after.target.name
    traces = pair.run(scenario)
    verdict = judge(*traces)
    if verdict.fingerprint != finding.verdict_fingerprint:
        raise InfraError(
            f"finding {finding.id}: its reproducer now says {verdict.verdict}; "
            f"try `schedfuzz replay {finding.id} {finding.before} {finding.after}`"
        )
    return build_case(scenario, verdict, names, *traces, driven=driven)


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
