"""Nouns: aim, aimed scenario.

A hunt that is to judge a change spends its effort where the change is: scenarios that ran changed
code become parents more often than others, and what they do there counts as news of its own.
"""

from random import Random

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.features import slot

SHARE = 0.5  # of the mutations whose parent ran changed code, once one did
KEPT = 256
_AIMED = 8  # the kind of these features, beside those of `features`
_MOST = 2048  # of them, so that a large change does not drown all else


class Aim:
    """Sites of the side after that a change touches; `reached` are those that ran so far."""

    def __init__(self, sites: frozenset[int]) -> None:
        self.sites = sites
        self.reached: set[int] = set()
        self._parents: list[Scenario] = []
        self._known: set[int] = set()

    def learn(self, scenario: Scenario, after: Trace, found: set[int]) -> set[int]:
        """Return what a run adds to its features: each schedule shape beside changed code."""
        lit = {site for site in self.sites if site < len(after.coverage) and after.coverage[site]}
        if not lit:
            return set()
        self.reached |= lit
        shapes = {feature % max(_MOST // len(self.sites), 1) for feature in found}
        added = {slot((_AIMED, site, shape)) for site in lit for shape in shapes}
        if not added <= self._known:
            self._known |= added
            self._parents = [*self._parents[1 - KEPT :], scenario]
        return added

    def parent(self, rng: Random) -> Scenario | None:
        """Return a scenario that ran changed code, now and then, once there is one."""
        if not self._parents or rng.random() >= SHARE:
            return None
        return rng.choice(self._parents)
