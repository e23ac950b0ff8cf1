"""Nouns: key, rows that nothing refers to.

Read from the models' foreign keys, so a new table that refers to an old one is minded by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, false, func, not_, select, true, tuple_

from schedfuzz.db.models import Base

Key = tuple[Column[Any], ...]


def key_of(model: type[Base]) -> Key:
    """Return the columns of the primary key."""
    return tuple(model.metadata.tables[model.__tablename__].primary_key)


def among(key: Key, keys: Sequence[Any]) -> ColumnElement[bool]:
    """Return the condition that a row's key is one of `keys` (rows of the key's columns)."""
    if len(key) == 1:
        return key[0].in_([row[0] for row in keys])
    return tuple_(*key).in_([tuple(row) for row in keys])


def unused(
    model: type[Base],
    keys: Sequence[Any] | None = None,
    going: Mapping[str, ColumnElement[bool]] | None = None,
) -> ColumnElement[bool]:
    """Return the condition that no foreign key refers to a row.

    With `keys`, only rows among them are looked at. `going` says by table which rows' references do
    not count.
    """
    referring = _referring(model)
    if not referring:
        return true()
    (own,) = key_of(model)
    wanted = None if keys is None else [key[0] for key in keys]

    def values(column: Column[Any]) -> Select[Any]:
        query = select(column).correlate(None)
        return query if wanted is None else query.where(column.in_(wanted))

    used = []
    for column in referring:
        condition = (going or {}).get(column.table.name, false())
        used.append(values(column).where(not_(func.coalesce(condition, false()))))
    # A set difference: without indexes on them, NOT EXISTS would read the tables once for each row.
    return own.in_(values(own).except_(*used))


def _referring(model: type[Base]) -> list[Column[Any]]:
    table = model.metadata.tables[model.__tablename__]
    return [
        key.parent
        for other in model.metadata.sorted_tables
        for key in other.foreign_keys
        if key.column.table is table
    ]
