"""Nouns: export command, format.

Takes findings out of the house: as pytest files and patches, which are run on both targets first,
or as texts for people and machines, which need no target.
"""

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click
import msgspec

from schedfuzz.cli.options import FindingId, db_option, open_db
from schedfuzz.cli.options import console as make_console
from schedfuzz.cli.source import stored_pair
from schedfuzz.corpus import case as case_file
from schedfuzz.corpus.case import Case
from schedfuzz.corpus.errors import InputError
from schedfuzz.db import queries
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.report.facts import Facts, gather
from schedfuzz.report.junit import junit
from schedfuzz.report.pages import issue, page
from schedfuzz.report.patch import patch
from schedfuzz.report.sarif import sarif
from schedfuzz.service.exporting import export_findings, export_together, refusal
from schedfuzz.workers.home import Home, make_directory, write_file
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import REAL_SUFFIX

# format -> (file name, all findings in one text)
TOGETHER: dict[str, tuple[str, Callable[[Sequence[Facts]], str]]] = {
    "junit": ("schedfuzz.xml", junit),
    "sarif": ("schedfuzz.sarif", sarif),
    "html": ("schedfuzz.html", page),
}
# format -> (ending, one finding's text)
EACH: dict[str, tuple[str, Callable[[Facts], str]]] = {
    "json": ("json", lambda facts: case_file.encode(as_case(facts.row))),
    "issue": ("md", issue),
}
FORMATS = ("pytest", "patch", *EACH, *TOGETHER)


@click.command()
@click.argument("findings", type=FindingId(), nargs=-1, required=True, metavar="ID...")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR",
    help="Where to write.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="pytest", show_default=True,
    help="What to write.",
)  # fmt: skip
@click.option(
    "--together", is_flag=True, help="With pytest and patch: all findings in one file."
)  # fmt: skip
@click.option(
    "--pair", nargs=2, metavar="BEFORE AFTER",
    help="The targets of the findings, where their stored names hold no path.",
)  # fmt: skip
@db_option
def export(
    findings: tuple[int, ...], out: Path, form: str, together: bool,
    pair: tuple[str, str] | None, db_url: str | None,
) -> None:  # fmt: skip
    """Write the findings with these IDs: pytest files, a patch, or a report.

    pytest files and patches are verified on both targets of each finding first.
    """
    store = open_db(db_url)
    rows = [queries.get_finding(store, number) for number in dict.fromkeys(findings)]
    if together and form not in ("pytest", "patch"):
        raise InputError(f"--together: is for pytest and patch, not {form}; leave it out")
    if form in ("pytest", "patch"):
        written = _Tests(store, rows, pair).written(out, form, together)
    else:
        written = _texts(store, rows, make_directory(out), form)
    for path in written:
        click.echo(path)


def as_case(row: Finding) -> Case:
    """Return a finding as a case for the pytest plugin."""
    real = REAL_SUFFIX in row.before
    return Case(
        msgspec.Raw(row.reproducer.data.encode()), row.title, row.verdict, row.kind, row.rule,
        row.fingerprint, (row.before, row.after), "real" if real else "simulated",
    )  # fmt: skip


def _texts(store: Store, rows: Sequence[Finding], out: Path, form: str) -> Iterator[Path]:
    facts = [gather(store, row.id) for row in rows]
    if form in TOGETHER:
        name, write = TOGETHER[form]
        write_file(out / name, write(facts))
        yield out / name
        return
    ending, write_one = EACH[form]
    for one in facts:
        path = out / f"finding-{one.row.id}.{ending}"
        write_file(path, write_one(one))
        yield path


class _Tests:
    """What pytest runs, made from findings; what cannot be is refused before a target starts."""

    def __init__(
        self, store: Store, rows: Sequence[Finding], spelled: tuple[str, str] | None
    ) -> None:
        for row in rows:
            if reason := refusal(row):
                raise InputError(f"finding {row.id}: {reason}")
        self.store = store
        self.pairs = {
            _pair(row): stored_pair(row, "export", *(spelled or (None, None))) for row in rows
        }
        self.rows = sorted(rows, key=_pair)
        self.console = make_console()

    def say(self, line: str) -> None:
        """Print one plain line."""
        self.console.print(line, markup=False)

    def written(self, out: Path, form: str, together: bool) -> Iterator[Path]:
        """Write the files and yield their paths."""
        folder = make_directory(out)
        if form == "pytest" and not together:
            yield from self._verified(folder)
            return
        with tempfile.TemporaryDirectory(prefix="schedfuzz-tests-") as scratch:
            made = (self._one_file if together else self._verified)(Path(scratch))
            files = {path.name: path.read_text() for path in made}
        if form == "patch":
            files = {_patch_name(self.rows): patch(files)}
        for name, text in files.items():
            write_file(folder / name, text)
            yield folder / name

    def _verified(self, out: Path) -> Iterator[Path]:
        for names, same in groupby(self.rows, key=_pair):
            with Pair(*self.pairs[names], Home.locate(), self.say) as pair:
                for _, result in export_findings(self.store, pair, list(same), out, self.say):
                    if isinstance(result, Exception):
                        raise result
                    yield result

    def _one_file(self, out: Path) -> Iterator[Path]:
        if len(self.pairs) > 1:
            raise InputError(
                "--together: the findings are of several pairs; export those of one at a time"
            )
        (targets,) = self.pairs.values()
        with Pair(*targets, Home.locate(), self.say) as pair:
            yield export_together(pair, self.rows, out, self.say)


def _pair(row: Finding) -> tuple[str, str]:
    return row.before, row.after


def _patch_name(rows: Sequence[Finding]) -> str:
    ids = "-".join(str(row.id) for row in rows)
    return f"finding-{re.sub('[^0-9-]', '', ids)[:80]}.patch"
