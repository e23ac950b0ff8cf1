"""Nouns: recorder.

Writes a hunt's findings to the database the moment they are made: what is stored survives any end
of the hunt. A hunt of the service also survives an absence of the database.
"""

import contextlib
import time
from collections.abc import Iterable

from schedfuzz.corpus import codec
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace, Verdict
from schedfuzz.db import poison, queries, traces, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import HuntState, MinimizeState
from schedfuzz.fuzzer.reduction import Reduction, RunPair
from schedfuzz.service.unsaved import Sighted, Unsaved

UPDATE_SECONDS = 5.0
KEPT_INCIDENTS = 100  # of one hunt: a broken machine would fill the disk


class DatabaseRecorder:
    """The hunt's recorder.

    `first` keeps this hunt's own (executions, seconds) per finding, `done` its latest totals. With
    a `campaign` its daily cap holds, and scenarios that cost workers are blamed for it. What both
    targets did is stored with a finding as far as the runs went through `watched`.
    """

    def __init__(
        self, store: Store, hunt: int, before: str, after: str, campaign: int | None = None
    ) -> None:
        self.store = store
        self.hunt = hunt
        self.before = before
        self.after = after
        self.campaign = campaign
        self.first: dict[int, tuple[int, float]] = {}
        self.done = (0, 0.0)
        self.finished = False
        self._incidents = 0
        self._latest: tuple[Scenario, Trace, Trace] | None = None
        self._updated = 0.0

    def watched(self, run: RunPair) -> RunPair:
        """Return a `run` whose latest traces are at hand when something is stored of them."""

        def play(scenario: Scenario) -> tuple[Trace, Trace]:
            before, after = run(scenario)
            self._latest = scenario, before, after
            return before, after

        return play

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        """Count one verdict; return its finding and whether that is new to this pair."""
        finding, new = writes.record_verdict(
            self.store, self.hunt, self.before, self.after, verdict, scenario, steps, execution,
            seconds, campaign_id=self.campaign,
        )  # fmt: skip
        self.first.setdefault(finding, (execution, seconds))
        if new:
            self._store_traces(finding)
        return finding, new

    def unfinished(self) -> Iterable[Reduction]:
        """Return the reductions that earlier hunts of this pair left."""
        for row in queries.unfinished_minimizations(self.store, self.before, self.after):
            try:
                scenario = codec.decode(row.reproducer.data)
            except InputError:
                continue  # stored under other rules: no reason to refuse every later hunt
            yield Reduction(
                row.id, row.verdict, row.verdict_fingerprint, scenario, row.reproducer_steps, self,
                row.minimize_calls,
            )  # fmt: skip

    def confirmed(self, finding: int, runs: int, hits: int) -> None:
        """Store how often the reproducer repeated."""
        writes.record_confirmation(self.store, finding, runs, hits)
        self._store_traces(finding)

    def reproducer(
        self, finding: int, scenario: Scenario, steps: int, calls: int, state: MinimizeState
    ) -> None:
        """Store the best reproducer so far."""
        if writes.save_reproducer(self.store, finding, scenario, steps, calls, state):
            self._store_traces(finding)

    def incident(self, what: str, detail: str, scenario: Scenario | None) -> None:
        """Store a fault of the machine, with the scenario that met it."""
        if self.campaign is not None and scenario is not None:
            poison.blame(self.store, self.before, self.after, scenario, detail)
        self._incidents += 1
        if self._incidents > KEPT_INCIDENTS:
            return
        target = detail.partition(": ")[0]
        writes.record_incident(self.store, self.hunt, target, what, detail, scenario)

    def _store_traces(self, finding: int) -> None:
        # To look at, and no more: whatever else is stored does not fail with it.
        if self._latest is not None:
            with contextlib.suppress(InfraError):
                traces.save(self.store, finding, *self._latest)

    def finish(self, state: HuntState) -> None:
        """Store the final totals and how the hunt ended."""
        writes.finish_hunt(self.store, self.hunt, state, *self.done)
        self.finished = True

    def progress(self, executions: int, seconds: float) -> None:
        """Store the hunt's totals now and then."""
        self.done = (executions, seconds)
        if time.monotonic() - self._updated > UPDATE_SECONDS:
            self._updated = time.monotonic()
            writes.update_hunt(self.store, self.hunt, executions, seconds)


class LastingRecorder(DatabaseRecorder):
    """The recorder of a hunt that goes on while its database is away."""

    def __init__(
        self, store: Store, hunt: int, before: str, after: str, campaign: int, unsaved: Unsaved
    ) -> None:  # fmt: skip
        super().__init__(store, hunt, before, after, campaign)
        self.unsaved = unsaved

    def sighting(
        self, verdict: Verdict, scenario: Scenario, steps: int, execution: int, seconds: float
    ) -> tuple[int, bool]:
        """Count one verdict, now or later: then it is no finding's (0) and nothing new yet."""
        try:
            return super().sighting(verdict, scenario, steps, execution, seconds)
        except InfraError:
            self.unsaved.keep(
                Sighted(self.hunt, self.before, self.after, verdict, scenario, steps, execution,
                        seconds, self.campaign)
            )  # fmt: skip
            return 0, False

    def incident(self, what: str, detail: str, scenario: Scenario | None) -> None:
        """Store a fault of the machine, if the database is there to hear of it."""
        with contextlib.suppress(InfraError):
            super().incident(what, detail, scenario)

    def finish(self, state: HuntState) -> None:
        """Store the final totals, if that can be: else the coordinator closes the hunt."""
        with contextlib.suppress(InfraError):
            super().finish(state)

    def progress(self, executions: int, seconds: float) -> None:
        """Store the hunt's totals now and then; the next time says what this one could not."""
        with contextlib.suppress(InfraError):
            super().progress(executions, seconds)
