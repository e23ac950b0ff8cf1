"""Nouns: exporting.

A case leaves the house only after plain pytest has run it in both targets' environments and it
failed where it must and passed where it must.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.export import Case, build_case, no_form
from schedfuzz.fuzzer.judge import judge
from schedfuzz.service.verification import run_on_both
from schedfuzz.workers.home import write_file
from schedfuzz.workers.pair import Pair

# verdict -> what pytest must say on before and after
EXPECTED = {
    "fixed": ("failed", "passed"),
    "regressed": ("passed", "failed"),
    "both": ("failed", "failed"),
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
        return no_form(_scenario(finding), finding.kind, finding.rule, finding.component)
    except InputError as error:
        return str(error)


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
    if not cases:
        return
    with tempfile.TemporaryDirectory(prefix="schedfuzz-export-") as scratch:
        drafts = {number: Path(scratch) / case.filename for number, case in cases.items()}
        for number, draft in drafts.items():
            draft.write_text(cases[number].text)
        names = f"{pair.before.target.name} and {pair.after.target.name}"
        say(f"verifying {len(drafts)} exported files on {names} …")
        sides = run_on_both(list(drafts.values()), pair)
    for row in rows:
        if row.id in cases:
            stem = drafts[row.id].stem
            said = tuple(side.get(stem, "not run") for side in sides)
            yield row, _write(store, row, cases[row.id], said, folder)


def _scenario(finding: Finding) -> Scenario:
    return codec.decode(finding.reproducer.data, "its reproducer")


def _release(name: str) -> str:
    return re.split("[:@]", name)[0]


def _build(finding: Finding, pair: Pair) -> Case:
    if reason := refusal(finding):
        raise InputError(reason)
    scenario = _scenario(finding)
    # The file runs vLLM's scheduler with an executor of its own, whichever runner found this.
    before, after = (side.target.on("simulated") for side in (pair.before, pair.after))
    names = before.name, after.name
    traces = pair.run(scenario)
    verdict = judge(*traces)
    if verdict.fingerprint != finding.verdict_fingerprint:
        raise InfraError(
            f"finding {finding.id}: its reproducer now says {verdict.verdict}; "
            f"try `schedfuzz replay {finding.id} {finding.before} {finding.after}`"
        )
    return build_case(scenario, verdict, names, *traces)


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
