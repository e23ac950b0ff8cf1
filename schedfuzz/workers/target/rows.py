"""Nouns: row: one request's share of a step, as the runner is about to compute it."""

from typing import NamedTuple

from schedfuzz.workers.target.state import State


class Row(NamedTuple):
    """Positions start..end-1 of a request; `digests` covers at least 0..end-1.

    `drafts` are the input's last tokens, `samples` whether the share reaches the newest token.
    """

    state: State
    start: int
    end: int
    digests: list[int]
    drafts: list[int]
    samples: bool

    @property
    def newest(self) -> int:
        """Return the position of the newest token, the last one that is no draft."""
        return self.end - len(self.drafts) - 1
