"""Nouns: entry, distillation.

A corpus only grows while hunting; distilling keeps a small part of it that lights every feature
the whole did. Features are bits of one integer, so that thousands of entries stay cheap.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.features import SITES, features


@dataclass(frozen=True)
class Entry:
    """One scenario of a corpus: its name, its size in bytes, its features as a bit set."""

    name: str
    size: int
    features: int


def lit(scenario: Scenario, before: Trace, after: Trace) -> int:
    """Return the bit set of what a run lit: the sites of both sides and the hashed features."""
    sites = int.from_bytes(before.coverage, "little")
    sites |= int.from_bytes(after.coverage, "little") << 8 * SITES
    hashed = 0
    for feature in features(scenario, before, after):
        hashed |= 1 << feature
    return sites | hashed << 16 * SITES


def distill(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries that together light all features, none of which could be left out.

    Small ones are taken first, so they stand in for large ones; the answer does not depend on the
    order of `entries`.
    """
    kept: list[Entry] = []
    covered = 0
    for entry in sorted(entries, key=lambda entry: (entry.size, entry.name)):
        if entry.features & ~covered:
            covered |= entry.features
            kept.append(entry)
    return _irredundant(kept)


def _irredundant(kept: list[Entry]) -> list[Entry]:
    """Drop, the largest first, what the others light too."""
    shared = _shared(kept)
    for entry in reversed(kept):
        if not entry.features & ~shared:
            kept = [other for other in kept if other is not entry]
            shared = _shared(kept)
    return kept


def _shared(entries: Iterable[Entry]) -> int:
    """Return the features that at least two entries light."""
    once = shared = 0
    for entry in entries:
        shared |= once & entry.features
        once |= entry.features
    return shared
