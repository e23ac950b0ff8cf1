"""Nouns: bisection, end, notebook.

Which commit of a clone brought, or took away, what a finding shows. Both ends are run first: an end
that does not behave as its side of the finding makes every answer wrong. The search is the same
for the same answers, so a notebook of them is all that a bisection needs to go on after it ended.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from schedfuzz.corpus.errors import InputError
from schedfuzz.fuzzer.bisection import Search, reliability
from schedfuzz.service.probing import Probe, Visit, Visitor
from schedfuzz.workers import clone as git
from schedfuzz.workers.home import Home, make_directory, write_file
from schedfuzz.workers.overlay import nearest_release
from schedfuzz.workers.targets import REAL_SUFFIX, Target

END_RUNS = 20
CONFIDENCE = 0.99


@dataclass(frozen=True)
class Result:
    """What a bisection came to: the likeliest commits (one: found), and how sure that is.

    `rate` is the share of the bad end's runs that showed it; `tried` and `skipped` count commits;
    `brought` says whether the commit brought the fault (else it took it away).
    """

    commits: list[str]
    confidence: float
    rate: float
    tried: int
    skipped: int
    brought: bool
    conclusive: bool


class _Look(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of a commit: `hits` of `runs`, or why it could not be tried."""

    commit: str
    runs: int
    hits: int
    why: str = ""


class Bisection:
    """One search through a clone; `say` hears of every commit that is tried."""

    def __init__(
        self, probe: Probe, clone: Path, good: str, bad: str, home: Home,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.probe = probe
        self.clone = clone
        self.home = home
        self.say = say
        self.good, self.bad = git.resolve(clone, good), git.resolve(clone, bad)
        older, newer = git.by_age(clone, self.good, self.bad)
        self.brought = newer == self.bad
        self.commits = git.line_of_commits(clone, older, newer)
        name = f"{probe.finding.reproducer_id[:12]}-{older[:12]}-{newer[:12]}.json"
        self._notebook = make_directory(home.root / "bisections") / name
        self._looks: list[_Look] = []
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self._looks = msgspec.json.decode(self._notebook.read_bytes(), type=list[_Look])
        self._at = 0

    def run(self, confidence: float = CONFIDENCE) -> Result:
        """Search until as sure as that, or until no run can make it surer.

        Raises InputError for ends that do not behave as they must.
        """
        rate = self._check_ends()
        search = Search(len(self.commits), rate, self.brought)
        self.say(
            f"{len(self.commits)} commits; the reproducer shows in about {rate:.0%} of runs, so "
            f"{search.runs} without it clear a commit"
        )
        tried: set[int] = set()
        while (index := search.next(confidence)) is not None:
            look = self._look(self.commits[index], search.runs)
            if look.why:
                search.skip(index)
            else:
                tried.add(index)
                search.saw(index, look.runs, look.hits)
        group, sure = search.answer()
        self._notebook.unlink(missing_ok=True)
        return Result(
            [self.commits[index] for index in group], sure, rate, len(tried), len(search.skipped),
            self.brought, sure >= confidence and len(group) == 1,
        )  # fmt: skip

    def _check_ends(self) -> float:
        """Return how reliably the bad end shows it."""
        bad = self._look(self.bad, END_RUNS, to_first_hit=False)
        rate = reliability(bad.hits, bad.runs)
        if bad.why or not bad.hits:
            raise InputError(
                f"the bad end {self.bad[:12]}: {bad.why or f'shows nothing in {bad.runs} runs'}; "
                "name another with --bad"
            )
        good = self._look(self.good, max(Search(1, rate, True).runs, 3))
        if good.why or good.hits:
            raise InputError(
                f"the good end {self.good[:12]}: {good.why or 'shows it too'}; name another with "
                "--good"
            )
        return rate

    def _look(self, commit: str, runs: int, to_first_hit: bool = True) -> _Look:
        """Return what is seen of a commit. Raises InfraError where the machine is at fault."""
        if self._at < len(self._looks) and self._looks[self._at].commit == commit:
            look = self._looks[self._at]
        else:
            look = self._tried(commit, runs, to_first_hit)
            self._looks[self._at :] = [look]
            write_file(self._notebook, msgspec.json.encode(self._looks).decode())
        self._at += 1
        seen = f"skipped: {look.why}" if look.why else f"shows in {look.hits} of {look.runs} runs"
        self.say(f"{commit[:12]}  {seen}")
        return look

    def _tried(self, commit: str, runs: int, to_first_hit: bool) -> _Look:
        try:
            visit = self._visit(commit, runs, to_first_hit)
        except InputError as error:
            return _Look(commit, 0, 0, str(error))
        if visit.outcome in ("other", "unsupported"):
            return _Look(commit, 0, 0, f"the reproducer meets something else ({visit.outcome})")
        return _Look(commit, len(visit.outcomes), visit.hits)

    def _visit(self, commit: str, runs: int, to_first_hit: bool) -> Visit:
        release = nearest_release(self.clone, commit, self.home)
        real = REAL_SUFFIX in self.probe.finding.before
        target = Target(release, clone=(self.clone, commit)).on("real" if real else "simulated")
        with Visitor(target, self.home, lambda line: None) as visitor:
            return visitor.visit(self.probe, runs, to_first_hit)
