"""Nouns: search, change, posterior, group.

Finds the commit that brought a change from runs that may miss it. The key insight: a run that does
not show a bug proves little where the bug shows itself only now and then, so nothing is ever
decided for good: each run shifts the probability of every commit (Bayes; see Horstein 1963,
"Sequential transmission using noiseless feedback"), the next commit to try is the one that halves
it, and what is left at the end is the confidence. Commits that cannot be tried leave their
neighbours together in a group that no run can tell apart.
"""

from dataclasses import dataclass, field
from itertools import accumulate

# A rule is never broken where it holds, but something else may go wrong once in so many runs.
FALSE_ALARM = 1e-4
MISSES = 1e-3  # how likely all runs of one visit may miss a bug that is there
MOST_RUNS = 30


@dataclass
class Search:
    """Which of `count` commits, oldest first, is the first that behaves as the newest does.

    `rate` is the share of runs that show the bug where it is; `shows_in_new` says whether it is in
    the newest commit (else before the first). `posterior[i]` is the probability of commit i.
    """

    count: int
    rate: float
    shows_in_new: bool
    skipped: set[int] = field(default_factory=set)
    posterior: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.posterior = [1 / self.count] * self.count

    @property
    def runs(self) -> int:
        """How many runs without the bug say of a commit that it is not there."""
        miss = 1.0 - self.rate
        for runs in range(1, MOST_RUNS):
            if miss**runs < MISSES:
                return runs
        return MOST_RUNS

    def next(self, confidence: float) -> int | None:
        """Return the commit to try, None when the answer is settled or cannot get better."""
        if self.answer()[1] >= confidence:
            return None
        up_to = list(accumulate(self.posterior))
        # The newest is known to behave as itself: to try it tells nothing.
        open_ = [
            index
            for index in range(self.count - 1)
            if index not in self.skipped and min(up_to[index], 1 - up_to[index]) > 1e-9
        ]
        return min(open_, key=lambda index: abs(up_to[index] - 0.5), default=None)

    def saw(self, index: int, runs: int, hits: int) -> None:
        """Take in that `hits` of `runs` runs of commit `index` showed the bug."""
        there, not_there = (
            rate**hits * (1 - rate) ** (runs - hits) for rate in (self._rate(), FALSE_ALARM)
        )
        for change in range(self.count):
            is_new = index >= change
            self.posterior[change] *= there if is_new == self.shows_in_new else not_there
        total = sum(self.posterior)
        self.posterior = [value / total for value in self.posterior]

    def skip(self, index: int) -> None:
        """Take in that a commit cannot be tried."""
        self.skipped.add(index)

    def answer(self) -> tuple[range, float]:
        """Return the likeliest group of commits and its probability."""
        groups: list[range] = []
        first = 0
        for index in range(self.count):
            if index not in self.skipped or index == self.count - 1:
                groups.append(range(first, index + 1))
                first = index + 1
        weights = [sum(self.posterior[index] for index in group) for group in groups]
        best = max(range(len(groups)), key=weights.__getitem__)
        return groups[best], min(weights[best], 1.0)

    def _rate(self) -> float:
        return min(max(self.rate, FALSE_ALARM), 1 - FALSE_ALARM)


def reliability(hits: int, runs: int) -> float:
    """Return the share of runs that show a bug, estimated from some (Jeffreys' prior's mean)."""
    return (hits + 0.5) / (runs + 1)
