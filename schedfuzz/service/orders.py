"""Nouns: order, report.

What passes between a hunt actor and the process that hunts for it: one order in, reports out, a
line of JSON each.
"""

from typing import Any

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of a campaign's hunt.

    `before` and `after` are spelled as on the command line. `seconds` and `executions` (None: no
    bound) limit the slice. `current` is the file that always holds the scenario at hand; `options`
    are kept with the hunt. Without `seeds` it starts from the corpus alone. In a self-check only
    a difference between two runs of one target counts.
    """

    database: str
    campaign: int
    before: str
    after: str
    node: str
    seed: int
    seconds: float
    current: str
    corpus: str
    executions: int | None = None
    dimensions: tuple[str, ...] = ()
    seeds: bool = True
    self_check: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """How far a slice is; `hunt` is its row. `memory` in bytes, of the hunt and its targets."""

    hunt: int
    state: str
    executions: int
    seconds: float
    sites: tuple[int, int]
    features: int
    findings: int
    infra: int
    restarts: int
    memory: int
