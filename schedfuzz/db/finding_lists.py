"""Nouns: wanted findings, found findings, sort.

What a list of findings is made from: which ones, in which order, which page of them. The command
line and the dashboard ask alike, so they show alike.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from sqlalchemy import ColumnElement, Select, case, func, or_, select

from schedfuzz.corpus.trace import KINDS, ORDER
from schedfuzz.db import queries, rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding

Sort = Literal["news", "id", "count", "first", "last", "size"]
SORTS: tuple[Sort, ...] = get_args(Sort)
# What nobody has to look at any more, unless something new is heard of it.
PUT_ASIDE = ("verified", "muted", "dup", "invalid")
_EXACT = ("before", "after", "verdict", "kind", "rule", "component")
_MAX_OFFSET = 2**31 - 1


@dataclass(frozen=True)
class Wanted:
    """Which findings: all that match each field that is given; `text` is in title or detail.

    `held` tells those behind their campaign's daily cap from the others.
    """

    before: str | None = None
    after: str | None = None
    verdict: str | None = None
    kind: str | None = None
    rule: str | None = None
    component: str | None = None
    status: tuple[str, ...] = ()
    text: str | None = None
    aside: bool = True
    held: bool | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return them for a query; without `aside`, what is put aside needs its status named."""
        given = [
            getattr(Finding, name) == rows.clean(getattr(self, name))
            for name in _EXACT
            if getattr(self, name)
        ]
        if self.status:
            given.append(Finding.status.in_(self.status))
        elif not self.aside:
            given.append(Finding.status.not_in(PUT_ASIDE))
        if self.held is not None:
            given.append(Finding.held_at.is_not(None) if self.held else Finding.held_at.is_(None))
        if self.text:
            clean = rows.clean(self.text)
            columns = (Finding.title, Finding.detail, Finding.fingerprint)
            given.append(or_(*(column.icontains(clean, autoescape=True) for column in columns)))
        return given


class Found(NamedTuple):
    """How many match, and the page: (finding, its sightings with those merged into it)."""

    total: int
    page: list[tuple[Finding, int]]


def find(
    store: Store, wanted: Wanted, sort: Sort = "news", backwards: bool = False,
    size: int | None = None, page: int = 1, scenarios: bool = False,
) -> Found:  # fmt: skip
    """Return one page (from 1) of the findings that are wanted; without a `size`, all of them.

    Scenarios stay in the database unless they are asked for.
    """
    conditions = wanted.conditions()
    query = (queries.with_scenarios() if scenarios else select(Finding)).where(*conditions)
    query = _sorted(query, sort, backwards)
    if size is not None:
        query = query.limit(size).offset(min((page - 1) * size, _MAX_OFFSET))
    count = select(func.count()).select_from(Finding).where(*conditions)
    with store.read() as session:
        findings = list(session.scalars(query))
        total = len(findings) if size is None else session.execute(count).scalar_one()
        merged = queries.merged_sightings(session, [row.id for row in findings])
    return Found(total, [(row, row.count + merged.get(row.id, 0)) for row in findings])


def _sorted(query: Select[Any], sort: Sort, backwards: bool) -> Select[Any]:
    """Return the query in order: news, ids and sizes from the front, the others from the top."""
    verdict = case({name: at for at, name in enumerate(ORDER)}, value=Finding.verdict, else_=99)
    kind = case({name: at for at, name in enumerate(KINDS)}, value=Finding.kind, else_=99)
    keys: dict[str, list[tuple[Any, bool]]] = {
        "news": [(verdict, False), (kind, False)],
        "id": [],
        "count": [(Finding.count, True)],
        "first": [(Finding.first_seen_at, True)],
        "last": [(Finding.last_seen_at, True)],
        "size": [
            (Finding.reproducer_requests, False), (Finding.reproducer_events, False),
            (Finding.reproducer_steps, False),
        ],
    }  # fmt: skip
    order = [*keys[sort], (Finding.id, False)]
    return query.order_by(*(key.desc() if down != backwards else key.asc() for key, down in order))
