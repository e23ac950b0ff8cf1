"""Opening a store: migrations, several processes at once, and what is refused."""

import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from found import list_findings
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import OperationalError
from test_db_writers import in_processes

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import connect, migrate, queries, writes
from schedfuzz.db.connect import open_store
from schedfuzz.db.models import Base

pytest_plugins = ["postgres"]


def refused(url: str, busy_timeout: float = 0.3) -> str:
    """Open the store, which must be refused in one line; return the line."""
    with pytest.raises(InputError) as caught:
        open_store(url, busy_timeout)
    line = str(caught.value)
    assert "\n" not in line
    return line


def drift(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE}
        )
        return list(compare_metadata(context, Base.metadata))


def test_migrations_give_the_models(url: str) -> None:
    store = open_store(url)
    assert drift(store.engine) == []
    with store.write() as session:
        session.execute(text("ALTER TABLE findings ADD COLUMN surplus INTEGER"))
    assert len(drift(store.engine)) == 1  # the comparison does see a difference
    store.close()


def test_head_is_the_newest_migration() -> None:
    folder = Path(migrate.__file__).with_name("migrations")
    assert ScriptDirectory(str(folder)).get_heads() == [migrate.HEAD]


def open_and_start(index: int, url: str) -> None:
    writes.start_hunt(open_store(url), "a", "b", index, {})


def test_eight_processes_open_first_and_make_one_schema(url: str) -> None:
    in_processes(open_and_start, url)
    store = open_store(url)
    assert sorted(row.seed for row in queries.list_hunts(store)) == list(range(8))
    assert drift(store.engine) == []
    with store.read() as session:
        found = session.scalars(text(f"SELECT version_num FROM {migrate.VERSION_TABLE}")).all()
    assert found == [migrate.HEAD]
    store.close()


def test_opening_again_needs_no_alembic(url: str) -> None:
    open_store(url).close()
    code = (
        "import sys; from schedfuzz.db.connect import open_store; open_store(sys.argv[1]);"
        "sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True)


def test_sqlite_is_set_up_for_several_writers(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    with store.engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        values = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in pragmas]
    assert values == ["wal", 1, 1, 30_000]
    store.close()


def test_two_processes_that_switch_to_the_write_ahead_log_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, real = f"sqlite:///{tmp_path}/x.db", migrate._outside
    busy = sqlite3.OperationalError("database is locked")
    busy.sqlite_errorcode = sqlite3.SQLITE_BUSY
    answers = iter([True, True, False])  # busy, busy, free

    def sometimes_busy(connection: Connection, pragma: str) -> sqlite3.Cursor:
        if "journal_mode" in pragma and next(answers, True):
            raise OperationalError(pragma, None, busy)
        return real(connection, pragma)

    monkeypatch.setattr(migrate, "_outside", sometimes_busy)
    open_store(url).close()
    assert next(answers, None) is None
    assert "locked by another process" in refused(url)  # busy for ever


def test_a_failed_transaction_leaves_nothing(url: str) -> None:
    store = open_store(url)
    with pytest.raises(KeyError), store.write() as session:
        session.execute(text("DELETE FROM " + migrate.VERSION_TABLE))
        raise KeyError
    store.close()
    open_store(url).close()


def change(url: str, *statements: str) -> None:
    """Change a database behind the back of schedfuzz."""
    store = open_store(url)
    with store.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    store.close()


FIRST_SCHEMA = (
    "INSERT INTO hunts (id, before, after, seed, state, started_at, executions, seconds, options)"
    " VALUES (1, 'a', 'b', 1, 'done', '2026-01-01 00:00:00.000000', 1, 1.5, '{}')",
    "INSERT INTO scenarios (id, data, requests, events, schema) VALUES ('s', '{}', 1, 0, 1)",
    *(
        "INSERT INTO findings (before, after, fingerprint, verdict, kind, rule, title, detail,"
        " status, count, hunt_id, executions_to_find, seconds_to_find, first_seen_at,"
        " last_seen_at, scenario_id, reproducer_id, reproducer_requests, reproducer_events,"
        " reproducer_steps, minimize_state, minimize_calls, confirm_runs, confirm_hits) VALUES"
        f" ('a', 'b', '{verdict}', '{verdict}', '{kind}', 'rule', 'a title', '', 'new', 1, 1, 1,"
        " 0.5, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000', 's', 's', 1, 0, 1,"
        " 'none', 0, 0, 0)"
        for verdict, kind in (("fixed", "crash"), ("changed", "divergence"))
    ),
)


def test_a_database_of_the_first_schema_comes_along(url: str) -> None:
    """What was stored before only the simulated runner had found, and no campaign had hunted."""
    parsed = connect._parse(url)
    if parsed.get_backend_name() == "sqlite":
        connect._make_folder(parsed)
    engine = connect._engine(parsed, 5)
    with engine.begin() as connection:
        migrate.upgrade(connection, "0001")
        for statement in FIRST_SCHEMA:
            connection.exec_driver_sql(statement)
    engine.dispose()
    store = open_store(url)
    assert drift(store.engine) == []
    assert [row.component for row in list_findings(store)] == ["scheduler", None]
    assert [(row.seconds, row.campaign_id) for row in queries.list_hunts(store)] == [(1.5, None)]
    store.close()


def test_a_newer_database_is_refused(url: str) -> None:
    change(url, f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")
    assert re.search("9999 is newer than this schedfuzz .*upgrade schedfuzz", refused(url))


def test_a_foreign_database_is_refused(url: str) -> None:
    change(
        url,
        *(f"DROP TABLE {table.name}" for table in reversed(Base.metadata.sorted_tables)),
        f"DROP TABLE {migrate.VERSION_TABLE}",
        "CREATE TABLE alembic_version (version_num TEXT)",
    )
    assert re.search(r"not schedfuzz's \(alembic_version.*new or empty database", refused(url))


def test_a_refused_sqlite_file_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    assert "theirs" in refused(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["foreign.db"]


def test_a_file_that_is_not_sqlite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("shopping list\n" * 100)
    assert re.search("notes.txt: not a SQLite file; name another", refused(f"sqlite:///{path}"))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_store(f"sqlite:///{path}").close()
    data = bytearray(path.read_bytes())
    data[100:4096] = b"\xff" * 3996  # the page that holds the schema
    path.write_bytes(data)
    assert "damaged SQLite file" in refused(f"sqlite:///{path}")


def test_a_locked_database_is_refused_after_the_timeout(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    open_store(url).close()
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "x.db: locked by another process; end or wait" in refused(url)
    other.close()
    open_store(url, 0.3).close()


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that other users can reach (pytest's own are private)."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Drop root's power to write everywhere, which would hide a read-only file."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


def make_read_only(folder: Path) -> Path:
    path = folder / "x.db"
    open_store(f"sqlite:///{path}").close()
    path.chmod(0o444)
    folder.chmod(0o555)
    return path


@pytest.fixture
def read_only_file(shared_folder: Path) -> Path:
    return make_read_only(shared_folder)


def test_a_read_only_file_is_refused(read_only_file: Path, unprivileged: None) -> None:
    line = refused(f"sqlite:///{read_only_file}")
    assert re.search("read-only; make the file|cannot be opened; name", line)


def test_a_folder_that_cannot_be_made_is_refused(read_only_file: Path, unprivileged: None) -> None:
    folder = read_only_file.parent / "new"
    line = refused(f"sqlite:///{folder}/x.db")
    assert f"cannot create folder {str(folder)!r} (Permission denied)" in line
    assert "cannot create folder" in refused(f"sqlite:///{read_only_file}/x.db")


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    assert "cannot be opened" in refused(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("findings.db", "not a database URL; expected sqlite:///FILE or postgresql:"),
        ("", "not a database URL"),
        ("postgresql://me:secret@host:port/db", "not a database URL"),
        ("mysql://me:secret@host/db", "mysql is not supported"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:///x.db?mode=ro", "no options"),
        ("sqlite://folder/x.db", "has no host"),
        ("sqlite:///nul\0/x.db", "null byte"),
        ("postgresql://me:secret@host", "names no database"),
        ("postgresql://me:secret@127.0.0.1:1/db", "refused.*check that the server runs"),
        ("postgresql://me@127.0.0.1:99999/db?password=secret", "99999.*; check"),
        ("postgresql://me:secret@/db?host=/no/such/folder", "No such file.*; check"),
        ("postgresql://me:secret@127.0.0.1:1/db?colour=red", "colour.*; check the URL"),
    ],
)
def test_a_bad_url_is_refused_and_its_password_not_shown(url: str, said: str) -> None:
    line = refused(url)
    assert re.search(said, line)
    assert "secret" not in line


def test_a_database_that_is_not_there(postgres_url: str) -> None:
    url = re.sub(r"/db\w+", "/elsewhere", postgres_url)
    assert 'database "elsewhere" does not exist; check' in refused(url)


def test_a_user_without_rights_is_refused(postgres_url: str) -> None:
    change(
        postgres_url,
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        "DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
        "GRANT USAGE ON SCHEMA public TO guest",
    )
    assert "grant CREATE" in refused(postgres_url.replace("postgres@", "guest@"))
    store = open_store(postgres_url)
    assert "findings" in inspect(store.engine).get_table_names()
    store.close()
