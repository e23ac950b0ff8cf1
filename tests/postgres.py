"""Nouns: a throw-away PostgreSQL server, and the URLs of empty databases on both dialects.

A pytest plugin (`pytest_plugins = ["postgres"]`). The server listens on a Unix socket only; it
refuses to run as root, so then it runs as postgres, else nobody.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
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


@contextmanager
def postgres_server(pg_ctl: Path) -> Iterator[str]:
    """Run a server for the length of the context; yield its Unix socket's folder."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = server_user()
    if user:
        os.chown(folder, int(str(user["user"])), int(str(user["group"])))
    data = folder / "data"

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [str(pg_ctl.with_name(program)), "-D", str(data), *arguments],
            check=True, cwd=folder, env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **user,
        )  # fmt: skip

    try:
        run("initdb", "-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run("pg_ctl", "-o", options, "-l", str(folder / "log"), "-w", "start")
        try:
            yield str(folder)
        finally:
            run("pg_ctl", "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The session's server: its socket's folder."""
    pg_ctl = find_pg_ctl()
    if pg_ctl is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    with postgres_server(pg_ctl) as socket:
        yield socket


@pytest.fixture
def postgres_url(postgres: str) -> str:
    """The URL of a new, empty PostgreSQL database."""
    name = f"db{uuid4().hex}"
    with psycopg.connect(host=postgres, user="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql://postgres@/{name}?host={postgres}"


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
