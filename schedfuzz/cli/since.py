"""Nouns: since when: the verbs matrix, bisect, verify.

Where a finding's reproducer shows what it shows: on which releases, since which commit of a local
clone, and whether a newer target still does.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from schedfuzz.cli.decide import by_option
from schedfuzz.cli.options import FindingId, db_option, json_option, open_db, print_json
from schedfuzz.cli.targets import say
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.names import CLONE_MARK
from schedfuzz.corpus.printable import plain
from schedfuzz.db import decisions, finding_lists, queries, verifications
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.service.bisecting import CONFIDENCE, Bisection, Result
from schedfuzz.service.probing import BAD, GOOD, Probe, Visit, Visitor
from schedfuzz.workers import clone as git
from schedfuzz.workers.environment import list_environments
from schedfuzz.workers.home import Home
from schedfuzz.workers.signals import stop_on_signals
from schedfuzz.workers.targets import RELEASE, parse_target

VERIFIED = ("confirmed", "minimized", "flaky", "reported", "fixed-in", "verified")


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@json_option
@db_option
def matrix(finding: int, targets: tuple[str, ...], as_json: bool, db_url: str | None) -> None:
    """Run the reproducer of finding ID on each TARGET, and print where it is bad.

    Without a TARGET, on every release whose environment is built.
    """
    store, home = open_db(db_url), Home.locate()
    row = queries.get_finding(store, finding)
    probe = Probe(store, row)
    spelled = targets or tuple(_built(home, row))
    if not spelled:
        raise InputError("no release is built; `schedfuzz targets add RELEASE` builds one")
    visits = []
    for target in [parse_target(text) for text in spelled]:
        say(f"{target.name} …")
        with Visitor(target, home, say) as visitor:
            visit = visitor.visit(probe, probe.runs)
        _keep(store, row.id, visit)
        visits.append(visit)
    if as_json:
        print_json([_as_object(visit) for visit in visits])
        return
    for visit in visits:
        mark = {**dict.fromkeys(BAD, "red"), **dict.fromkeys(GOOD, "green")}.get(visit.outcome)
        said = click.style(f"{visit.outcome:<12}", fg=mark)
        click.echo(f"{visit.target:<12}  {said}{visit.agreeing} of {len(visit.outcomes)} runs")
    click.echo("; ".join(_summary(visits)))


@click.command()
@click.argument("finding", type=FindingId(), metavar="ID")
@click.option(
    "--repo",
    type=click.Path(path_type=Path),
    metavar="CLONE",
    help="A local clone of vLLM to search for the commit; without it, the pair of releases.",
)
@click.option("--good", metavar="REF", help="One without it (default: the good release's tag).")
@click.option("--bad", metavar="REF", help="One with it (default: the bad release's tag).")
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=CONFIDENCE,
    show_default=True,
    help="How sure to be before it stops.",
)
@by_option
@json_option
@db_option
def bisect(
    finding: int, repo: Path | None, good: str | None, bad: str | None, confidence: float,
    by: str, as_json: bool, db_url: str | None,
) -> None:  # fmt: skip
    """Find the commit since which finding ID shows, or no longer does.

    Commits that cannot run are skipped. What was seen is kept: the same command goes on with it.
    """
    store, home = open_db(db_url), Home.locate()
    row = queries.get_finding(store, finding)
    probe = Probe(store, row)
    if repo is None:
        if good or bad:
            raise InputError("--good and --bad name commits of a clone; add --repo CLONE")
        _releases(store, home, row, probe, as_json)
        return
    clone = repo.expanduser().resolve()
    ends = _ends(row, good, bad)
    result = Bisection(probe, clone, *ends, home, say).run(confidence)
    subjects = {commit: git.subject(clone, commit) for commit in result.commits}
    _note(store, row, result, subjects, by)
    if as_json:
        print_json(_result_as_object(result, subjects))
        return
    for line in _told(result, subjects):
        click.echo(plain(line))


@click.command()
@click.argument("target")
@click.argument("findings", nargs=-1, type=FindingId(), metavar="[ID]...")
@by_option
@json_option
@db_option
def verify(
    target: str, findings: tuple[int, ...], by: str, as_json: bool, db_url: str | None
) -> None:
    """Run the open findings (or those with these IDs) on TARGET; mark what it fixes.

    What was said to be fixed and shows again is reopened. Divergences are left out.
    """
    store, home = open_db(db_url), Home.locate()
    on = parse_target(target)
    rows = _to_verify(store, findings, on.runner)
    said = []
    with Visitor(on, home, say) as visitor, stop_on_signals() as stop:
        for row in rows:
            if stop.made:
                raise KeyboardInterrupt
            probe = Probe(store, row)
            visit = visitor.visit(probe, probe.runs, to_first_hit=True)
            _keep(store, row.id, visit)
            became = _decide(store, row, visit, by)
            said.append(_as_object(visit) | {"id": row.id, "became": became})
            if not as_json:
                click.echo(f"finding {row.id}\t{visit.outcome}\t{became}")
    if as_json:
        print_json(said)
    elif not rows:
        click.echo("no finding to verify", err=True)


def _to_verify(store: Store, ids: tuple[int, ...], runner: str) -> list[Finding]:
    if ids:
        return [queries.get_finding(store, number) for number in ids]
    wanted = finding_lists.Wanted(status=VERIFIED, held=False)
    found = finding_lists.find(store, wanted, "id", scenarios=True).page
    real = runner == "real"
    return [
        row for row, _ in found
        if row.verdict != "changed" and (":real" in row.before) == real
    ]  # fmt: skip


def _decide(store: Store, row: Finding, visit: Visit, by: str) -> str:
    """Mark what the visit shows to be fixed, or reopen it; return the finding's status then."""
    note = f"{visit.outcome} in {visit.agreeing} of {len(visit.outcomes)} runs on {visit.target}"
    if visit.outcome in GOOD and row.status != "verified":
        decisions.verified(store, row.id, visit.target, by, note)
    elif visit.outcome in BAD and row.status in ("fixed-in", "verified"):
        decisions.reopen(store, row.id, by, note)
    return queries.get_finding(store, row.id).status


def _keep(store: Store, finding: int, visit: Visit) -> None:
    verifications.save(
        store, finding, visit.target, visit.outcome, len(visit.outcomes), visit.agreeing
    )


def _built(home: Home, row: Finding) -> Iterator[str]:
    """Yield the spelling of every release that is built, oldest first, on the finding's runner."""
    suffix = ":real" if ":real" in row.before else ""
    ready = [env for env in list_environments(home) if not env.problem()]
    for env in sorted(ready, key=lambda env: _numbers(env.release)):
        if not (suffix and env.base is not None):  # one that borrows plays the simulated runner
            yield env.release + suffix


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def _summary(visits: Sequence[Visit]) -> Iterator[str]:
    """Yield where the finding is bad, and every step at which that changes."""
    bad = [visit.target for visit in visits if visit.outcome in BAD]
    yield f"bad on {', '.join(bad)}" if bad else "bad on none"
    known = [visit for visit in visits if visit.outcome in (*BAD, *GOOD)]
    for one, two in zip(known, known[1:], strict=False):
        if (one.outcome in BAD) != (two.outcome in BAD):
            verb = "came" if two.outcome in BAD else "went"
            yield f"{verb} between {one.target} and {two.target}"


def _releases(store: Store, home: Home, row: Finding, probe: Probe, as_json: bool) -> None:
    """Print the pairs of releases between which the finding comes or goes."""
    visits = []
    for spelled in _built(home, row):
        with Visitor(parse_target(spelled), home, say) as visitor:
            visits.append(visitor.visit(probe, probe.runs, to_first_hit=True))
        _keep(store, row.id, visits[-1])
        say(f"{spelled}  {visits[-1].outcome}")
    _, *steps = _summary(visits)
    if as_json:
        print_json({"releases": [_as_object(visit) for visit in visits], "steps": steps})
        return
    click.echo("; ".join(steps) or "inconclusive: the releases built here behave alike")


def _ends(row: Finding, good: str | None, bad: str | None) -> tuple[str, str]:
    """Return the refs of the good and the bad end. Raises InputError when one must be named."""
    sides = (row.after, row.before) if row.verdict == "fixed" else (row.before, row.after)
    if row.verdict == "both" and not (good and bad):
        raise InputError(
            f"finding {row.id}: both its targets are bad; name a commit with --good and one with "
            "--bad"
        )
    return good or _ref(sides[0]), bad or _ref(sides[1])


def _ref(name: str) -> str:
    """Return a stored target's commit, or the tag of its release."""
    release, _, commit = name.partition(":")[0].partition(CLONE_MARK)
    if commit:
        return commit
    found = RELEASE.match(release)
    return f"v{found[0] if found else release}"


def _note(
    store: Store, row: Finding, result: Result, subjects: dict[str, str], by: str
) -> None:  # fmt: skip
    text = "; ".join(_told(result, subjects))
    decisions.remark(store, row.id, text, by, "bisect")


def _told(result: Result, subjects: dict[str, str]) -> Iterator[str]:
    what = "the first bad commit" if result.brought else "the first good commit"
    if result.conclusive:
        yield f"{what}: {result.commits[0]} {subjects[result.commits[0]]}"
    else:
        yield f"inconclusive: {what} is one of {len(result.commits)}"
        for commit in result.commits:
            yield f"  {commit} {subjects[commit]}"
    yield (
        f"confidence {result.confidence:.4f}: {result.tried} commits tried, {result.skipped} could "
        f"not be; the reproducer shows in about {result.rate:.0%} of runs"
    )


def _result_as_object(result: Result, subjects: dict[str, str]) -> dict[str, Any]:
    return {
        "conclusive": result.conclusive, "brought": result.brought,
        "commits": [{"commit": commit, "subject": text} for commit, text in subjects.items()],
        "confidence": result.confidence, "rate": result.rate, "tried": result.tried,
        "skipped": result.skipped,
    }  # fmt: skip


def _as_object(visit: Visit) -> dict[str, Any]:
    return {
        "target": visit.target, "outcome": visit.outcome, "runs": len(visit.outcomes),
        "hits": visit.agreeing,
    }  # fmt: skip
