"""Nouns: database URL, Store, read and write transactions.

A store is one engine for the life of the process. The key insight: a SQLite transaction that
reads first and writes later fails at once when another writer got in between, so every write
transaction says BEGIN IMMEDIATE and waits its turn.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session

# All tables must be known before one of them is used: their foreign keys name each other.
import schedfuzz.db.decision_models
import schedfuzz.db.service_models  # noqa: F401
from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db.faults import explain
from schedfuzz.db.migrate import bring_to_head

_WRITE = "schedfuzz_write"
_FORMS = "expected sqlite:///FILE or postgresql://USER@HOST/DATABASE"


class Store:
    """An open database at the newest schema; `name` is its URL without secrets."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self.engine = engine
        self._writer = engine.execution_options(**{_WRITE: True})

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session on one consistent read. Raises InfraError when the database fails."""
        with self._session(self.engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session in one write transaction, committed at the end, undone on any exception.

        Raises InfraError when the database fails (locked, full disk, server gone).
        """
        with self._session(self._writer) as session, session.begin():
            yield session

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        try:
            with Session(engine, expire_on_commit=False) as session:
                yield session
        except DBAPIError as error:
            meaning = explain(error)
            if meaning is None:
                raise
            raise InfraError(f"{self.name}: {meaning}") from error

    def close(self) -> None:
        """Close the pooled connections."""
        self.engine.dispose()


def open_store(url: str, busy_timeout: float = 30.0) -> Store:
    """Open the database, creating a SQLite file and its folders, and bring its schema to head.

    `busy_timeout` is how many seconds a transaction waits for SQLite's other writers, or for a
    connection to PostgreSQL. Raises InputError (one line: the database, what is wrong, the cure).
    """
    parsed = _parse(url)
    name = _shown(parsed)
    if parsed.get_backend_name() == "sqlite":
        _make_folder(parsed)
    engine = _engine(parsed, busy_timeout)
    try:
        bring_to_head(engine.execution_options(**{_WRITE: True}), busy_timeout)
    except InputError as error:
        engine.dispose()
        raise InputError(f"{name}: {error}") from None
    except DBAPIError as error:
        engine.dispose()
        meaning = explain(error)
        if meaning is None:
            raise
        raise InputError(f"{name}: {meaning}") from error
    return Store(name, engine)


def _parse(url: str) -> URL:
    # A malformed URL is shown, but not what may be its password.
    shown = re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InputError(f"{shown!r}: not a database URL; {_FORMS}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:":
            raise InputError(f"{shown!r}: names no file, and findings must last; {_FORMS}")
        if parsed.host or parsed.query:
            raise InputError(f"{shown!r}: a SQLite URL has no host and no options; {_FORMS}")
        return parsed
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        if not parsed.database:
            raise InputError(f"{shown!r}: names no database; {_FORMS}")
        return parsed.set(drivername="postgresql+psycopg")
    raise InputError(f"{shown!r}: {parsed.drivername} is not supported; {_FORMS}")


def _shown(url: URL) -> str:
    public = url.difference_update_query(["password", "passfile", "sslpassword"])
    return public.render_as_string(hide_password=True).replace("+psycopg:", ":")


def _make_folder(url: URL) -> None:
    folder = Path(url.database or "").parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{_shown(url)}: cannot create folder {str(folder)!r} ({why}); "
            "name a file in a folder you may write"
        ) from None


def _engine(url: URL, busy_timeout: float) -> Engine:
    if url.get_backend_name() != "sqlite":
        wait = {} if "connect_timeout" in url.query else {"connect_timeout": int(busy_timeout) or 1}
        # Pre-ping: a hunt must survive a restart of its server.
        return create_engine(url, connect_args=wait, pool_pre_ping=True)
    engine = create_engine(url, connect_args={"timeout": busy_timeout})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # None stops the driver from opening (deferred) transactions of its own.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get(_WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
