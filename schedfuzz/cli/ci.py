"""Nouns: ci command, artefact.

Judges a pull request, or a scheduler class against vLLM's own, in the time of a CI job, and leaves
what CI systems read. Exit codes beyond those of every verb: 3 when something new breaks, 4 when
the changed code was never run, so that nothing was shown.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from schedfuzz.cli.export import as_case
from schedfuzz.cli.options import Seconds, db_option, open_db
from schedfuzz.cli.options import console as make_console
from schedfuzz.cli.session import quiet
from schedfuzz.cli.source import parse_on
from schedfuzz.cli.status import Status
from schedfuzz.corpus import case as case_file
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.printable import plain
from schedfuzz.db.connect import Store
from schedfuzz.fuzzer import guide
from schedfuzz.fuzzer.hunt import Totals
from schedfuzz.report.facts import Facts, gather
from schedfuzz.report.junit import Check, junit
from schedfuzz.report.pages import page
from schedfuzz.report.sarif import sarif
from schedfuzz.report.summary import summary
from schedfuzz.service.exporting import export_findings
from schedfuzz.service.pull_request import Budget, Judgement, judge_change
from schedfuzz.workers import clone as git
from schedfuzz.workers.change import Change, find_change
from schedfuzz.workers.home import Home, make_directory, write_file
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.signals import EXIT_INTERRUPTED, stop_on_signals
from schedfuzz.workers.targets import Target, parse_release, parse_target

EXIT_NEW = 3
EXIT_UNREACHED = 4
A_PATH = click.Path(path_type=Path)


@dataclass
class Job:
    """What one call is asked to judge, and where its artefacts go."""

    store: Store
    home: Home
    out: Path
    targets: tuple[Target, Target]
    change: Change | None
    budget: Budget
    strict: bool

    @property
    def names(self) -> tuple[str, str]:
        """The names of both targets."""
        return self.targets[0].name, self.targets[1].name


@click.command()
@click.option("--repo", type=A_PATH, metavar="CLONE", help="The local clone of vLLM.")
@click.option(
    "--base", metavar="REF", help="What the change starts from (its merge base is taken)."
)
@click.option("--head", metavar="REF", default="HEAD", show_default=True,
              help="The change; `.` for the working files.")  # fmt: skip
@click.option("--scheduler-cls", metavar="MODULE:CLASS",
              help="Judge this class against vLLM's own scheduler of --release.")  # fmt: skip
@click.option(
    "--release",
    metavar="RELEASE",
    help="Whose compiled parts the commits lie over (default: the nearest "
    "that is built); with --scheduler-cls: what to judge against.",
)
@click.option("--seconds", type=Seconds(1), default="120", show_default=True, metavar="TIME",
              help="How long to hunt.")  # fmt: skip
@click.option("--runner", type=click.Choice(["simulated", "real"]), default="simulated",
              show_default=True, help="What plays the model.")  # fmt: skip
@click.option("--corpus", "corpora", type=A_PATH, multiple=True, metavar="DIR",
              help="More scenarios to start from (may be repeated).")  # fmt: skip
@click.option("--out", type=A_PATH, default=Path("schedfuzz-ci"), show_default=True, metavar="DIR",
              help="Where the artefacts go.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31 - 2), help="Repeat a hunt.")
@click.option("--strict", is_flag=True, help="Divergences fail too.")
@db_option
def ci(
    repo: Path | None, base: str | None, head: str, scheduler_cls: str | None,
    release: str | None, seconds: float, runner: str, corpora: tuple[Path, ...], out: Path,
    seed: int | None, strict: bool, db_url: str | None,
) -> int:  # fmt: skip
    """Judge a change of the scheduler: does it break what held before?

    Either --repo and --base (and --head), or --release and --scheduler-cls.
    """
    if not guide.available():
        raise InputError("ci needs Atheris, which this machine has not; x86_64 Linux has it")
    for folder in corpora:
        if not folder.is_dir():
            raise InputError(f"--corpus {folder}: no such directory; name one with scenarios")
    home, folder = Home.locate(), make_directory(out)
    change = None
    if scheduler_cls is not None:
        if release is None or repo is not None or base is not None:
            raise InputError("--scheduler-cls: goes with --release, and with no clone")
        targets = parse_on(release, runner), parse_on(f"{release}@{scheduler_cls}", runner)
    else:
        targets, change = _of_clone(repo, base, head, runner, release)
    fresh = make_directory(folder / "corpus")
    budget = Budget(seconds, secrets.randbelow(2**31 - 2) if seed is None else seed, fresh, corpora)
    job = Job(open_db(db_url), home, folder, targets, change, budget, strict)
    if change is not None and not change.files:
        rest = f"; {len(change.others)} other files differ" if change.others else ""
        said = f"The change touches nothing of the scheduler{rest}."
        return _say(_conclude(job, "nothing to judge", said), 0)
    return _judge(job)


def _say(lines: Sequence[str], code: int) -> int:
    for line in lines:
        click.echo(plain(line))
    return code


def _of_clone(
    repo: Path | None, base: str | None, head: str, runner: str, release: str | None
) -> tuple[tuple[Target, Target], Change]:
    if repo is None or base is None:
        raise InputError("name --repo CLONE and --base REF, or --release and --scheduler-cls")
    clone = repo.expanduser().resolve()
    start, end = git.resolve(clone, base), git.resolve(clone, head)
    if head != git.WORKING_FILES:
        start = git.merge_base(clone, start, end)
    change = find_change(clone, start, end, runner == "real")
    if not change.files:  # nothing will run, so no release has to be there for it
        placeholder = Target("0.0.0", clone=(clone, start)), Target("0.0.0", clone=(clone, end))
        return placeholder, change
    over = f"{parse_release(release)}:" if release else ""
    one, two = (parse_target(f"{over}{clone}#{commit}") for commit in (start, end))
    return (one.on(runner), two.on(runner)), change  # type: ignore[arg-type]


def _judge(job: Job) -> int:
    console = make_console()

    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    say(f"judging {job.names[1]} against {job.names[0]}, seed {job.budget.seed} …")
    status = Status(console, " ".join(job.names), job.budget.fresh, job.budget.seed)

    def tick(totals: Totals) -> None:
        status.show(totals)

    code, lines = 0, [""]
    with stop_on_signals() as stop, status, quiet(job.home.logs / "libfuzzer.log"):
        judged = judge_change(
            job.store, job.home, job.targets, job.change, job.budget, say, tick,
            lambda: stop.made,
        )  # fmt: skip
        for judgement, pair in judged:
            code, lines = _report(job, judgement, pair, say)
    return _say(lines, code)


def _report(
    job: Job, judgement: Judgement, pair: Pair, say: Callable[[str], None]
) -> tuple[int, list[str]]:  # fmt: skip
    """Write the artefacts; return the exit code and what to say."""
    held = [
        row for row in judgement.rows
        if row in judgement.new or (job.strict and row.verdict == "changed" and row.confirm_hits)
    ]  # fmt: skip
    new = [gather(job.store, row.id) for row in held]
    for one in new:
        cases = make_directory(job.out / "regressions")
        write_file(cases / f"finding-{one.row.id}.json", case_file.encode(as_case(one.row)))
    if new and not judgement.interrupted:
        tests = make_directory(job.out / "tests")
        for row, result in export_findings(job.store, pair, held, tests, say):
            if isinstance(result, InputError | InfraError):
                say(f"no test for finding {row.id}: {result}")
    word, sentence, code = _outcome(job, judgement, new)
    others = [row.verdict for row in judgement.rows if row not in held]
    lines = _conclude(
        job, word, sentence, new, others, code, totals=judgement.totals, sites=judgement.sites,
        reached=judgement.reached,
    )  # fmt: skip
    return code, lines


def _outcome(job: Job, judgement: Judgement, new: Sequence[Facts]) -> tuple[str, str, int]:
    """Return the outcome in a word and a sentence, and the exit code."""
    if new:
        what = ", ".join(dict.fromkeys(one.row.title for one in new))
        return "new violations", f"The change breaks what held before: {what}.", EXIT_NEW
    if judgement.interrupted:
        return "interrupted", "It was ended before its time.", EXIT_INTERRUPTED
    if not judgement.totals.executions:
        return "nothing was run", "No scenario could be run.", 1
    if judgement.unreached:
        sentence = (
            f"None of the {judgement.sites} changed blocks was ever run, so nothing was shown: "
            "give it more --seconds, or a --corpus that reaches them."
        )
        return "changed code never reached", sentence, EXIT_UNREACHED
    if job.change is not None and not judgement.sites:
        return (
            "nothing new, and the change was not seen",
            "Nothing new is broken. Which lines ran cannot be told: the changed code has no blocks "
            "of its own, or no engine imports it.",
            0,
        )
    return "nothing new", "Nothing that held before is broken.", 0


def _conclude(
    job: Job, word: str, sentence: str, new: Sequence[Facts] = (), others: Sequence[str] = (),
    code: int = 0, **facts: object,
) -> list[str]:  # fmt: skip
    """Write what CI systems read, and return the outcome in lines."""
    files = job.change.files if job.change else ()
    text = summary(word, sentence, job.names, new, others, files=files, **facts)
    write_file(job.out / "summary.md", text)
    check = Check(f"schedfuzz ci: {word}", sentence, failed=code not in (0, EXIT_NEW))
    write_file(job.out / "schedfuzz.xml", junit(new, check=check))
    write_file(job.out / "schedfuzz.sarif", sarif(new))
    write_file(job.out / "schedfuzz.html", page(new))
    job_page = os.environ.get("GITHUB_STEP_SUMMARY")
    if job_page:
        with Path(job_page).open("a", encoding="utf-8") as file:
            file.write(text)
    found = [f"  finding {one.row.id}: {one.row.title} (`schedfuzz show`)" for one in new]
    return [f"{word}: {sentence}", *found, f"artefacts are in {job.out}"]
