"""Nouns: judgement of a change.

One hunt that is to say whether a change to the scheduler breaks what held before: before is the
change's base, after is the change. Only what after alone breaks, and breaks again, is held against
it; and a hunt that never ran the changed code says nothing about it.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from schedfuzz.corpus.brought import seed_corpus
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.fuzzer.aim import Aim
from schedfuzz.fuzzer.hunt import Hunt, Plan, Totals
from schedfuzz.service.recorder import DatabaseRecorder
from schedfuzz.workers.change import Change, sites_of
from schedfuzz.workers.home import Home
from schedfuzz.workers.pair import Pair, limit_of
from schedfuzz.workers.targets import Target

Say = Callable[[str], None]


@dataclass(frozen=True)
class Budget:
    """What a judgement may cost, and where it starts: `corpora` are read, never written.

    `fresh` is an empty directory for what the hunt itself finds worth keeping.
    """

    seconds: float
    seed: int
    fresh: Path
    corpora: Sequence[Path] = ()


@dataclass(frozen=True)
class Judgement:
    """What came out; `sites` changed blocks could be seen and `reached` of them ran.

    `rows` are all findings sighted, news first; without a change to look for, both counts are 0.
    """

    before: str
    after: str
    totals: Totals
    rows: list[Finding]
    sites: int
    reached: int
    interrupted: bool

    @property
    def new(self) -> list[Finding]:
        """What after alone breaks, and broke again when it was tried again."""
        return [row for row in self.rows if row.verdict == "regressed" and row.confirm_hits]

    @property
    def unreached(self) -> bool:
        """Whether changed code could be seen, and never ran."""
        return self.sites > 0 and self.reached == 0


def judge_change(
    store: Store, home: Home, targets: tuple[Target, Target], change: Change | None,
    budget: Budget, say: Say, tick: Callable[[Totals], None], stopping: Callable[[], bool],
) -> Iterator[tuple[Judgement, Pair]]:  # fmt: skip
    """Hunt on the pair; yield the judgement while the pair still runs, once.

    Raises as `Pair`, and InfraError when the database is gone.
    """
    before, after = targets
    names = before.name, after.name
    options = {"cover": change.modules if change else ()}
    with (
        _recorded(store, names, budget) as recorder,
        Pair(before, after, home, say, recorder.incident, **options) as pair,
    ):
        sites = sites_of(change, pair.after.where) if change else frozenset()
        aim = Aim(sites) if sites else None
        plan = Plan(
            [budget.fresh, seed_corpus(), *budget.corpora], budget.seed, budget.seconds,
            artifacts=home.logs, limit=limit_of(before, after), aim=aim,
        )  # fmt: skip

        def count(totals: Totals) -> None:
            recorder.progress(totals.executions, totals.seconds)
            tick(totals)

        totals = Hunt(recorder.watched(pair.run), recorder, plan, count, stopping).run()
        recorder.finish("interrupted" if stopping() else "done")
        rows = [queries.get_finding(store, number) for number in sorted(recorder.first)]
        reached = len(aim.reached) if aim else 0
        yield Judgement(*names, totals, rows, len(sites), reached, stopping()), pair


@contextlib.contextmanager
def _recorded(
    store: Store, names: tuple[str, str], budget: Budget
) -> Iterator[DatabaseRecorder]:  # fmt: skip
    """Store the hunt as running; whatever ends it early leaves it interrupted."""
    options = {"ci": True, "time": budget.seconds}
    recorder = DatabaseRecorder(
        store, writes.start_hunt(store, *names, budget.seed, options), *names
    )
    try:
        yield recorder
    except BaseException:
        if not recorder.finished:
            recorder.finish("interrupted")
        raise
