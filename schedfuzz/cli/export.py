"""Nouns: export command.

A case leaves the house only after plain pytest has run it in both targets' environments and it
failed where it must and passed where it must.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console

from schedfuzz.cli.options import console as make_console
from schedfuzz.cli.options import db_option, open_db
from schedfuzz.cli.source import reproducer, stored_pair, write_file
from schedfuzz.cli.verification import run_on_both
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.export import Case, build_case
from schedfuzz.fuzzer.judge import judge
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.pair import Pair

# verdict -> what pytest must say on before and after
EXPECTED = {
    "fixed": ("failed", "passed"),
    "regressed": ("passed", "failed"),
    "both": ("failed", "failed"),
}
Result = tuple[Finding, Path | InputError | InfraError]


@click.command()
@click.argument("finding", type=int, metavar="ID")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Where to write the pytest file.",
)
@db_option
def export(finding: int, out: Path, db_url: str | None) -> None:
    """Write finding ID as a self-contained pytest file, verified on both of its targets."""
    store = open_db(db_url)
    row = queries.get_finding(store, finding)
    console = make_console()
    folder = make_directory(out)
    before, after = stored_pair(row, "export", None, None)
    with Pair(before, after, Home.locate(), console.print) as pair:
        for _, result in export_findings(store, pair, [row], folder, console):
            if isinstance(result, Exception):
                raise result
            click.echo(result)


def export_findings(
    store: Store, pair: Pair, rows: Sequence[Finding], folder: Path, console: Console
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
        console.print(f"verifying {len(drafts)} exported files on {names} …", markup=False)
        sides = run_on_both(list(drafts.values()), pair)
    for row in rows:
        if row.id in cases:
            stem = drafts[row.id].stem
            said = tuple(side.get(stem, "not run") for side in sides)
            yield row, _write(store, row, cases[row.id], said, folder)


def _build(finding: Finding, pair: Pair) -> Case:
    scenario = reproducer(finding)
    # The file runs vLLM's scheduler with an executor of its own, whichever runner found this.
    before, after = (side.target.on("simulated") for side in (pair.before, pair.after))
    names = before.name, after.name
    if any("+" in name for name in names):
        raise InputError(
            f"finding {finding.id}: plain pytest cannot run a transformed release; "
            "export a finding of two releases"
        )
    traces = pair.run(scenario)
    verdict = judge(*traces)
    if verdict.fingerprint != finding.fingerprint:
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
