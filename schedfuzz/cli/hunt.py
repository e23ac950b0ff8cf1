"""Nouns: hunt command.

Builds what is missing, hunts, and leaves with the findings stored. Ctrl-C, SIGTERM and SIGHUP end
it as its time limit would: what is open is stored and the next hunt of the pair goes on from there.
"""

import secrets
from pathlib import Path

import click

from schedfuzz.cli.options import Seconds, console, db_option
from schedfuzz.cli.session import Session
from schedfuzz.cli.source import parse_on
from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.corpus.errors import InputError
from schedfuzz.db.connect import open_store
from schedfuzz.fuzzer import guide
from schedfuzz.fuzzer.hunt import Plan
from schedfuzz.fuzzer.supported import Limit
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.pair import limit_of
from schedfuzz.workers.targets import Target

DEFAULT_SECONDS = 300.0
EXIT_FINDINGS = 3
OTHER_PLACE = "name another place"
A_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("before")
@click.argument("after", required=False)
@click.option(
    "--time",
    "seconds",
    type=Seconds(),
    metavar="TIME",
    help="Hunt for this long: 90, 90s, 10m, 2h (default 300, or unlimited with --runs).",
)
@click.option("--runs", type=click.IntRange(0, 10**12), help="Stop after this many executions.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 2), help="Repeat a hunt exactly.")
@click.option(
    "--corpus",
    "corpus_dir",
    type=A_PATH,
    metavar="DIR",
    help="Start from this directory instead of the kept corpus.",
)
@click.option(
    "--json", "json_file", type=A_PATH, metavar="FILE", help="Write the result as one JSON object."
)
@click.option(
    "--export",
    "export_dir",
    type=A_PATH,
    metavar="DIR",
    help="Export every violation found as a pytest file.",
)
@click.option(
    "--runner",
    type=click.Choice(["simulated", "real", "both"]),
    help="What plays the model (default simulated); both: hunt on the simulated one and replay "
    "on the real one what is new.",
)
@click.option(
    "--scheduler-cls",
    metavar="MODULE:CLASS",
    help="Hunt AFTER with this scheduler class instead of vLLM's own (as AFTER@MODULE:CLASS); "
    "without AFTER: BEFORE against BEFORE@MODULE:CLASS.",
)
@click.option("--strict", is_flag=True, help="Divergences alone also exit with 3.")
@db_option
def hunt(
    before: str, after: str | None, seconds: float | None, runs: int | None, seed: int | None,
    corpus_dir: Path | None, json_file: Path | None, export_dir: Path | None,
    runner: str | None, scheduler_cls: str | None, strict: bool, db_url: str | None,
) -> int:  # fmt: skip
    """Fuzz BEFORE against AFTER (releases such as 0.28.0 0.29.0) and store what differs.

    Without AFTER, BEFORE is hunted alone: every rule it breaks is a finding (but see
    --scheduler-cls). The same release twice is a self-check: only a difference between its two
    runs is.
    """
    if not guide.available():
        raise InputError("hunt needs Atheris, which this machine has not; x86_64 Linux has it")
    if scheduler_cls is not None:
        after = f"{after or before}@{scheduler_cls}"
    one, two = parse_on(before, runner), parse_on(after or before, runner)
    home = Home.locate()
    if corpus_dir is None:
        corpus = [home.corpus(one.name, two.name), seed_corpus()]
    else:
        corpus = [make_directory(corpus_dir, OTHER_PLACE)]
    if json_file is not None:
        _check_writable(json_file)
    if export_dir is not None:
        make_directory(export_dir, OTHER_PLACE)
    plan = Plan(
        corpus,
        secrets.randbelow(2**31 - 2) if seed is None else seed,
        DEFAULT_SECONDS if seconds is None and runs is None else seconds,
        runs,
        self_check=after is not None and one == two,
        artifacts=home.logs,
        limit=_limit(one, two, runner),
    )
    store = open_store(db_url or home.database_url)
    session = Session(home, store, one, two, plan, console(), both=runner == "both")
    rows = session.run(json_file, export_dir)
    alarming = any(strict or row.verdict != "changed" for row in rows)
    return EXIT_FINDINGS if alarming else 0


def _limit(one: Target, two: Target, runner: str | None) -> Limit | None:
    """Return the limit of every pair that the hunt is to run on."""
    return limit_of(one.on("real"), two.on("real")) if runner == "both" else limit_of(one, two)


def _check_writable(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        make_directory(path.absolute().parent, OTHER_PLACE)
    new = not path.exists()
    try:
        path.open("ab").close()
        if new:  # a hunt that ends early leaves no file that is no JSON
            path.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot write it ({error.strerror}); name another file") from None
