"""Nouns: what a database holds.

All findings of a store, oldest first and with their scenarios, as most tests want to see them.
"""

from typing import Any

from schedfuzz.db import finding_lists
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding


def list_findings(store: Store, **wanted: Any) -> list[Finding]:
    """Return the findings that match; the filters are `Wanted`'s."""
    found = finding_lists.find(store, finding_lists.Wanted(**wanted), "id", scenarios=True)
    return [row for row, _ in found.page]
