"""Nouns: revision, head, foreign database, the migration lock.

Opening is cheap when the schema is already at head: one short transaction reads the revision and
Alembic is not even imported. Otherwise the revision is read again under the lock that the other
processes wait for too (SQLite's write lock, an advisory lock on PostgreSQL), so one migrates.
"""

import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import OperationalError

from schedfuzz.corpus.errors import InputError

HEAD = "0004"
VERSION_TABLE = "schedfuzz_revision"
_ADVISORY_LOCK = 0x5C4EDF022


def bring_to_head(engine: Engine, patience: float) -> None:
    """Migrate the database behind `engine`, whose transactions must be write transactions.

    `patience` is in seconds: how long to retry what SQLite's busy timeout does not cover.
    Raises InputError for a foreign database, a newer one, or a SQLite file that cannot have a
    write-ahead log; the driver's own errors pass through. A refused database is not changed.
    """
    with engine.begin() as connection:
        revision = _revision(connection)
    if engine.dialect.name == "sqlite":
        _use_write_ahead_log(engine, patience)
    if revision != HEAD:
        _migrate(engine)


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations (up to `revision`) inside the connection's current transaction.

    Raises InputError when the database's revision is not one of ours.
    """
    # Imported late: Alembic costs more than the rest of an ordinary opening.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    folder = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    found = _revision(connection)
    if found is not None and found not in known:
        raise InputError(
            f"schema revision {found} is newer than this schedfuzz (it knows up to {HEAD}); "
            "upgrade schedfuzz or name another database"
        )
    command.upgrade(config, revision)


def _revision(connection: Connection) -> str | None:
    """Return the schema's revision, None for an empty database."""
    tables = inspect(connection).get_table_names()
    if VERSION_TABLE in tables:
        found = connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}"))
        if found is not None:
            return str(found)
    if set(tables) - {VERSION_TABLE}:
        raise InputError(
            f"holds tables that are not schedfuzz's ({sorted(tables)[0]}, ...); "
            "name a new or empty database"
        )
    return None


def _migrate(engine: Engine) -> None:
    with engine.connect() as connection:
        sqlite = connection.dialect.name == "sqlite"
        if sqlite:
            # Rebuilding a table must not fire its foreign keys; no effect inside a transaction.
            _outside(connection, "PRAGMA foreign_keys=OFF")
        with connection.begin():
            if not sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
            upgrade(connection)
            if sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise RuntimeError("a migration broke a foreign key")
        if sqlite:
            _outside(connection, "PRAGMA foreign_keys=ON")


def _use_write_ahead_log(engine: Engine, patience: float) -> None:
    """Switch the file to WAL, for good, retrying for `patience` seconds.

    Two processes that switch at once would wait for each other: SQLite tells one of them "busy"
    without waiting for its busy timeout.
    """
    deadline = time.monotonic() + patience
    with engine.connect() as connection:
        while True:
            try:
                mode = _outside(connection, "PRAGMA journal_mode=WAL").fetchone()[0]
                break
            except OperationalError as error:
                code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
                if code != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
    if mode != "wal":
        raise InputError(
            f"its disk cannot hold a write-ahead log (journal mode {mode}); "
            "use a local disk or PostgreSQL"
        )


def _outside(connection: Connection, pragma: str) -> sqlite3.Cursor:
    """Run a pragma that works only outside transactions, which SQLAlchemy always opens."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    try:
        return raw.execute(pragma)
    except sqlite3.Error as error:
        raise OperationalError(pragma, None, error) from error
