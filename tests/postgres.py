"""Nouns: a throw-away PostgreSQL server, and the URLs of empty databases on both dialects.

A pytest plugin (`pytest_plugins = ["postgres"]`). The server listens on a Unix socket only; it
refuses to run as root, so then it runs as postgres, else nobody.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from schedfuzz.db.connect import Store, open_store


def find_pg_ctl() -> Path | None:
    """Return the newest Debian server's pg_ctl, else the one on PATH, else None."""
    debian = Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")
    newest = sorted(debian, key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("pg_ctl")
    return newest[-1] if newest else Path(on_path).resolve() if on_path else None


def server_user() -> dict[str, object]:
    """Return subprocess's arguments for a user that may run a server."""
    if os.geteuid() != 0:
        return {}
    names = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Server:
    """A server on a Unix socket in `folder`, with all it has stored; it may be stopped and started.

    `clock` names a file that says by how much its clock is wrong (libfaketime's: "+1d");
    `settings` are the server's own ("name=value").
    """

    def __init__(
        self, pg_ctl: Path, clock: Path | None = None, settings: Sequence[str] = ("fsync=off",)
    ) -> None:
        self.pg_ctl = pg_ctl
        self.settings = ("listen_addresses=''", *settings)
        self.folder = Path(tempfile.mkdtemp(prefix="pg"))
        self._user = server_user()
        self._clock = {} if clock is None else faked(clock)
        if self._user:
            os.chown(self.folder, int(str(self._user["user"])), int(str(self._user["group"])))
        self._run("initdb", "-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = " ".join([f"-k {self.folder}", *(f"-c {one}" for one in self.settings)])
        self._run("pg_ctl", "-o", options, "-l", str(self.folder / "log"), "-w", "start")

    def stop(self) -> None:
        """Stop it at once, as a power cut would."""
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    def new_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"db{uuid4().hex}"
        with psycopg.connect(host=str(self.folder), user="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.pg_ctl.with_name(program)), "-D", str(self.folder / "data"), *arguments],
            check=True, cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", **self._clock},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **self._user,
        )  # fmt: skip


def faked(clock: Path) -> dict[str, str]:
    """Return the environment of a process whose clock a file shifts, without its timers.

    Skip the test where the library is missing.
    """
    libraries = list(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not libraries:
        pytest.skip("no libfaketime here: apt-get install faketime")
    return {
        "LD_PRELOAD": str(libraries[0]), "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1", "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_RESET": "1",
    }  # fmt: skip


@contextmanager
def postgres_server(
    clock: Path | None = None, settings: Sequence[str] = ("fsync=off",)
) -> Iterator[Server]:
    """Run a server for the length of the context; skip the test where there is none."""
    pg_ctl = find_pg_ctl()
    if pg_ctl is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    server = Server(pg_ctl, clock, settings)
    try:
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's server."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> str:
    """The URL of a new, empty PostgreSQL database."""
    return postgres.new_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new database, once on each dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new/folder/findings.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A new, open store, once on each dialect."""
    store = open_store(url)
    yield store
    store.close()
