"""Nouns: what a database driver's error means, in one line with its cure.

Only faults of the path, the server or the machine are explained here; a broken constraint or a
wrong statement is our own fault and must surface as it is.
"""

import sqlite3

from sqlalchemy.exc import DatabaseError, DBAPIError, InternalError, OperationalError

_SQLITE = {
    sqlite3.SQLITE_BUSY: "locked by another process; end or wait for that process, then try again",
    sqlite3.SQLITE_LOCKED: "locked by another transaction; try again",
    sqlite3.SQLITE_PERM: "permission denied; choose a file you may write",
    sqlite3.SQLITE_READONLY: "read-only; make the file and its folder writable, or name another",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; name a file in a folder you may write",
    sqlite3.SQLITE_NOTADB: "not a SQLite file; name another file",
    sqlite3.SQLITE_CORRUPT: "a damaged SQLite file; restore a copy or name another file",
    sqlite3.SQLITE_FULL: "no space left on its disk; free some or name a file on another disk",
    sqlite3.SQLITE_IOERR: "disk I/O error; check the disk and the space left on it",
}
_POSTGRES = {
    "42501": "the user lacks a privilege; grant CREATE on the schema and ownership of its tables",
    "25006": "the server is read-only; name its primary",
    "53100": "the server has no space left on its disk; free some there",
}


def explain(error: DBAPIError) -> str | None:
    """Return the fault and its cure in one line, or None when the fault is our own."""
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        # An extended code (SQLITE_READONLY_DIRECTORY, ...) keeps the primary one in its low byte.
        return _SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF)
    state = getattr(cause, "sqlstate", None)
    if state in _POSTGRES:
        return _POSTGRES[state]
    said = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    if isinstance(error, OperationalError | InternalError) or type(error) is DatabaseError:
        return f"{said}; check that the server runs and that the URL is right"
    if state is None:  # refused by the client library, before any server saw it
        return f"{said}; check the URL"
    return None
