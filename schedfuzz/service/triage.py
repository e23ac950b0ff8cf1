"""Nouns: triage: minimize, export, verify, distill.

What a finding or a corpus needs besides hunting, each as a function that starts a pair, works, and
stores what it has as it goes: cut short anywhere it has lost nothing, and done twice it says the
same.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.db import queries, shared_corpus, verifications
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.distill import Entry, distill, lit
from schedfuzz.fuzzer.judge import judge
from schedfuzz.fuzzer.reduction import CONFIRM_RUNS, Reduction
from schedfuzz.service.exporting import export_findings, refusal
from schedfuzz.service.probing import Probe, Visitor
from schedfuzz.service.recorder import DatabaseRecorder
from schedfuzz.workers.home import Home, make_directory
from schedfuzz.workers.pair import Pair
from schedfuzz.workers.targets import Target, parse_target

Stopping = Callable[[], bool]
Result = dict[str, Any]


class Stopped(Exception):
    """The work was asked to stop: somebody else goes on with it later."""


def minimize(store: Store, home: Home, finding_id: int, stopping: Stopping) -> Result:
    """Confirm a finding and minimize its reproducer; return how that ended.

    Raises Stopped, and InfraError when its targets cannot run.
    """
    row = queries.get_finding(store, finding_id)
    before, after = _targets(row)
    recorder = DatabaseRecorder(store, row.hunt_id, row.before, row.after)
    reduction = Reduction(
        row.id, row.verdict, row.verdict_fingerprint, _reproducer(row), row.reproducer_steps,
        recorder, row.minimize_calls, self_check=before == after and row.verdict != "both",
    )  # fmt: skip
    with Pair(before, after, home, _silent, recorder.incident, coverage=False) as pair:
        run = recorder.watched(pair.run)
        while not reduction.done:
            if stopping():
                reduction.pause()
                raise Stopped
            reduction.advance(run)
    return {"hits": reduction.hits, "runs": reduction.runs, "calls": reduction.minimizer.calls}


def export(store: Store, home: Home, finding_id: int, stopping: Stopping) -> Result:
    """Check that a finding leaves as a pytest file that fails and passes where it must.

    Raises InfraError when that cannot be tried. A finding without such a form is a result too.
    """
    row = queries.get_finding(store, finding_id)
    why = refusal(row)
    if why:
        return {"file": None, "why": why}
    folder = make_directory(home.root / "exported")
    with Pair(*_targets(row), home, _silent, coverage=False) as pair:
        (_, outcome), *_ = export_findings(store, pair, [row], folder, _silent)
    if isinstance(outcome, InfraError):
        raise outcome
    if isinstance(outcome, Path):
        return {"file": outcome.name, "text": outcome.read_text()}
    return {"file": None, "why": str(outcome)}


def verify(store: Store, home: Home, target: str, stopping: Stopping) -> Result:
    """Play on a target the reproducers that were not played on it yet, and store what that says.

    An outcome is `breaks` (the same rule), `other` (another one), `keeps` or `unsupported`. Return
    how many there were of each. Raises Stopped, and InfraError for what could not be run.
    """
    on = parse_target(target)
    counts: dict[str, int] = {}
    with Visitor(on, home, _silent) as visitor:
        for finding, _ in verifications.missing(store, [target]):
            if stopping():
                raise Stopped
            probe = Probe(store, queries.get_finding(store, finding))
            visit = visitor.visit(probe, CONFIRM_RUNS)
            counts[visit.outcome] = counts.get(visit.outcome, 0) + 1
            verifications.save(
                store, finding, target, visit.outcome, len(visit.outcomes), visit.agreeing
            )
    return counts


def distill_corpus(
    store: Store, home: Home, before: str, after: str, stopping: Stopping
) -> Result:  # fmt: skip
    """Drop what other scenarios of a pair's corpus light as well; return how many are left.

    What could not be run stays, for nothing is known of it. Raises Stopped.
    """
    targets = parse_target(before), parse_target(after)
    names = targets[0].name, targets[1].name
    found = shared_corpus.load(store, sorted(shared_corpus.ids(store, *names)))
    entries: list[Entry] = []
    with Pair(*targets, home, _silent) as pair:
        for name, scenario in found.items():
            if stopping():
                raise Stopped
            traces = pair.run(scenario)
            if judge(*traces).verdict != "infra":
                entries.append(Entry(name, len(codec.encode(scenario)), lit(scenario, *traces)))
    superfluous = {entry.name for entry in entries} - {entry.name for entry in distill(entries)}
    shared_corpus.drop(store, *names, sorted(superfluous))
    return {"kept": len(found) - len(superfluous), "dropped": len(superfluous)}


def _targets(row: Finding) -> tuple[Target, Target]:
    return parse_target(_spelled(row.before)), parse_target(_spelled(row.after))


def _spelled(name: str) -> str:
    """Return how a stored target name is spelled: a scheduler class carries a digest there."""
    return name.rpartition("@")[0] if name.count("@") == 2 else name


def _reproducer(row: Finding) -> Scenario:
    return codec.decode(row.reproducer.data, f"finding {row.id}")


def _silent(line: str) -> None:
    """Say nothing: a job's account is its row."""
