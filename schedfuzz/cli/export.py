"""Nouns: export command, verification.

A case leaves the house only after plain pytest has run it in both targets' environments and it
failed where it must and passed where it must.
"""

import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from schedfuzz.cli.options import console as make_console
from schedfuzz.cli.options import db_option, open_db
from schedfuzz.cli.source import reproducer, stored_pair, write_file
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.export import Case, build_case
from schedfuzz.fuzzer.judge import judge
from schedfuzz.workers.environment import Environment
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.target.main import die_with_parent

PYTEST_SECONDS = 600
PASSED, FAILED = 0, 1  # pytest's exit codes
# verdict -> what pytest must say on before and after
EXPECTED = {"fixed": (FAILED, PASSED), "regressed": (PASSED, FAILED), "both": (FAILED, FAILED)}


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
        click.echo(export_finding(store, pair, row, folder, console))


def export_finding(
    store: Store, pair: Pair, finding: Finding, folder: Path, console: Console
) -> Path:
    """Build, verify and write the finding's pytest file; return its path.

    Raises InputError for a finding without a pytest form, InfraError when it cannot be verified.
    """
    case = _build(finding, pair)
    with tempfile.TemporaryDirectory(prefix="schedfuzz-export-") as scratch:
        draft = Path(scratch) / case.filename
        draft.write_text(case.text)
        for process, wanted in zip(
            (pair.before, pair.after), EXPECTED[finding.verdict], strict=True
        ):
            console.print(f"verifying {case.filename} on {process.target.name} …", markup=False)
            _verify(finding, draft, process.environment, wanted)
    path = folder / case.filename
    write_file(path, case.text)
    queries.record_export(store, finding.id, str(path.absolute()))
    return path


def _build(finding: Finding, pair: Pair) -> Case:
    scenario = reproducer(finding)
    names = pair.before.target.name, pair.after.target.name
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


def _verify(finding: Finding, file: Path, environment: Environment, wanted: int) -> None:
    command = [str(environment.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    try:
        answer = subprocess.run(
            command, env=environment.variables(), cwd=file.parent, capture_output=True, text=True,
            timeout=PYTEST_SECONDS, preexec_fn=partial(die_with_parent, os.getpid()),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InfraError(
            f"finding {finding.id}: its pytest file takes over {PYTEST_SECONDS} s on "
            f"{environment.release}; nothing was written"
        ) from None
    if answer.returncode != wanted:
        lines = answer.stdout.strip().splitlines() or answer.stderr.strip().splitlines() or [""]
        words = {PASSED: "pass", FAILED: "fail"}
        raise InfraError(
            f"finding {finding.id}: its pytest file must {words[wanted]} on "
            f"{environment.release} and did not ({lines[-1]}); nothing was written"
        )
