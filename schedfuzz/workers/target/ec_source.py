"""Nouns: embedding source.

The world outside that sends embeddings: a picture with a delay arrives so many engine steps after
it is first asked for, and stays with the connector until the encoder cache gives it up; whoever
needs it then has it sent again.
"""

from typing import TYPE_CHECKING

from schedfuzz.workers.target.seam_encoder import identifier

if TYPE_CHECKING:
    from schedfuzz.workers.target.runner import SimulatedRunner


class Source:
    """What was asked for and when it is due, by picture; time is the runner's step."""

    def __init__(self, runner: "SimulatedRunner") -> None:
        self.runner = runner
        self.due: dict[str, int] = {}
        self.local: set[str] = set()  # in the encoder cache as far as the connector was told
        self.taken: dict[str, int] = {}
        self.holders: set[tuple[str, str]] = set()  # (request, picture) as the connector was told

    def arrived(self, name: str) -> bool:
        """Return whether a picture's embeddings are with the connector."""
        return name in self.due and self.due[name] <= self.runner.step

    def available(self, req_id: str, computed: int) -> bool:
        """Return whether all pictures that end after `computed` are there, and ask for others."""
        there = True
        for image in self.runner.requests[req_id].images:
            name = identifier(image)
            if image.delay is None or image.offset + image.length <= computed:
                continue
            if name not in self.local:
                self.due.setdefault(name, self.runner.step + image.delay)
                there &= self.arrived(name)
        return there

    def take(self, req_id: str, index: int) -> None:
        """Say that the encoder cache made room for a request's picture: load it if it is here."""
        image = self.runner.requests[req_id].images[index]
        name = identifier(image)
        if self.arrived(name):
            self.taken[name] = image.length
        self.local.add(name)
        self.holders.add((req_id, name))

    def give_up(self, req_id: str, index: int) -> None:
        """Say that a request needs its picture no more."""
        self.holders.discard((req_id, identifier(self.runner.requests[req_id].images[index])))

    def loads(self, freed: list[str]) -> dict[str, int]:
        """Return what this step loads (picture -> encoder tokens), after what it frees."""
        loads, self.taken = self.taken, {}
        for name in freed:
            if name not in loads:
                self.local.discard(name)
                self.due.pop(name, None)
        return loads

    def awaited(self) -> bool:
        """Return whether something that was asked for is still to come."""
        return any(step > self.runner.step for step in self.due.values())
