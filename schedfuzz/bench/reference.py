"""Nouns: reference, entry.

What the original does with a fixed set of scenarios, run once and kept: it is the same for every
mutant, and says which scenarios run the block that a mutant has changed. All others run alike on
both and need not be run at all. A run in which the original breaks a rule counts too: it is the
same each time, so that a mutant can differ from it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from schedfuzz.bench.child import Stopping
from schedfuzz.corpus.codec import decode
from schedfuzz.corpus.errors import InputError
from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Trace
from schedfuzz.fuzzer.generate import generate
from schedfuzz.workers.process import TargetProcess

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Trace)


@dataclass(frozen=True)
class Entry:
    """A scenario with the original's trace, packed and without its coverage."""

    scenario: Scenario
    packed: bytes
    coverage: bytes

    @property
    def trace(self) -> Trace:
        """Return the original's trace."""
        return _decoder.decode(self.packed)


class Reference:
    """The original, running, and the entries that it played: to the end, or to a broken rule."""

    def __init__(self, original: TargetProcess) -> None:
        self.original = original
        self.entries: list[Entry] = []
        self._sites: dict[str, list[int]] = {}

    def fill(self, scenarios: Iterable[Scenario], stopping: Stopping) -> None:
        """Run scenarios on the original and keep those that it plays."""
        for scenario in scenarios:
            if stopping():
                return
            self.original.submit(scenario)
            entry = self.entry(scenario, self.original.collect())
            if entry is not None:
                self.entries.append(entry)

    def entry(self, scenario: Scenario, trace: Trace) -> Entry | None:
        """Return an entry, or None for a scenario that the original does not play the same twice.

        That is one that it refuses, that the machine could not run, or that only a time limit ends.
        """
        hangs = any(broken.kind == "hang" for broken in trace.violations)
        if trace.outcome not in ("finished", "violated") or hangs:
            return None
        bare = msgspec.structs.replace(trace, coverage=b"")
        return Entry(scenario, _encoder.encode(bare), trace.coverage)

    def reaches(self, entry: Entry, site: str) -> bool:
        """Return whether the original ran the block of `site` in this entry's scenario."""
        if not self._sites:
            for number, name in enumerate(self.original.where):
                self._sites.setdefault(name, []).append(number)
        lit = entry.coverage
        return any(number < len(lit) and lit[number] for number in self._sites.get(site, ()))


def scenarios(directories: Sequence[Path], seed: int, count: int) -> Iterator[Scenario]:
    """Yield `count` scenarios: the directories' files by their names, then random ones.

    Files that are no scenarios are passed over.
    """
    left = count
    for directory in directories:
        for path in sorted(directory.iterdir()):
            if left and path.is_file():
                try:
                    scenario = decode(path.read_bytes())
                except InputError:
                    continue
                left -= 1
                yield scenario
    for number in range(left):
        yield generate(Random(f"{seed}:{number}"))
