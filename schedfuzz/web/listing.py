"""Nouns: list of findings: filters, sort, page."""

from collections.abc import Mapping
from typing import Any, get_args

from schedfuzz.corpus.trace import KINDS, ORDER
from schedfuzz.db import finding_lists
from schedfuzz.db.connect import Store
from schedfuzz.db.finding_lists import SORTS
from schedfuzz.db.models import Finding, FindingStatus
from schedfuzz.db.rows import clean
from schedfuzz.web.answer import BadInput

PAGE = 100
EXACT = ("before", "after", "verdict", "kind", "rule", "component")
FILTERS = (*EXACT, "status", "text", "all", "sort", "reverse")
LISTED = (
    "id", "before", "after", "verdict", "kind", "rule", "component", "title", "status",
    "first_seen_at", "last_seen_at",
)  # fmt: skip
CHOICES = {"verdict": ORDER, "kind": KINDS, "status": get_args(FindingStatus), "sort": SORTS}


def listed(
    store: Store, arguments: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Return a page of the findings that the arguments of a URL ask for, and what the page needs.

    Raises BadInput for an unknown sort or page.
    """
    given = {name: clean(arguments.get(name, "")) for name in FILTERS}
    sort: Any = given["sort"] or "news"
    if sort not in SORTS:
        raise BadInput(f"sort {sort!r}: there are {', '.join(SORTS)}")
    number = arguments.get("page", "1")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise BadInput(f"page {number!r}: write its number")
    page = max(int(number), 1)
    exact: dict[str, Any] = {name: given[name] for name in EXACT}
    wanted = finding_lists.Wanted(
        status=(given["status"],) if given["status"] else (), text=given["text"],
        aside=bool(given["all"]), **exact,
    )  # fmt: skip
    found = finding_lists.find(store, wanted, sort, bool(given["reverse"]), PAGE, page)
    facts = {
        "filters": {name: value for name, value in given.items() if value},
        "page": page, "pages": -(-found.total // PAGE), "total": found.total,
        "findings": [_row(*entry) for entry in found.page],
    }  # fmt: skip
    return facts, {"choices": CHOICES, "given": given}


def _row(row: Finding, sightings: int) -> dict[str, Any]:
    size = {"requests": row.reproducer_requests, "steps": row.reproducer_steps}
    return {name: getattr(row, name) for name in LISTED} | {"count": sightings, "size": size}
