"""Log lines: JSON whatever happens, context, masks, and streams that are gone."""

import io
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from test_db_writers import fork

from schedfuzz.corpus.errors import InputError
from schedfuzz.service import logs


class Stubborn:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.set_up(stream)
    yield stream
    logs.set_up()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def one(stream: io.StringIO, **context: object) -> dict[str, Any]:
    """The one line that a logger writes with this context."""
    logs.get().info("said", **context)
    (line,) = lines(stream)
    return line


def test_a_line_says_what_when_and_who(stream: io.StringIO) -> None:
    log = logs.get(node="n1").bind(campaign="night")
    with logs.bound(job=7):
        log.warning("claimed", more=[1, 2.5, None, True, {"a": "é"}])
    log.info("after")
    first, second = lines(stream)
    when = datetime.fromisoformat(first.pop("time"))
    assert when.utcoffset() == timedelta(0) and abs(when - datetime.now(UTC)) < timedelta(minutes=1)
    assert first == {
        "event": "claimed", "level": "warning", "pid": os.getpid(), "node": "n1",
        "campaign": "night", "job": 7, "more": [1, 2.5, None, True, {"a": "é"}],
    }  # fmt: skip
    assert "job" not in second and second["event"] == "after"


@pytest.mark.parametrize("level, shown", [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_levels(level: str, shown: int) -> None:
    early, stream = logs.get(), io.StringIO()  # made before set_up: obeys it all the same
    logs.set_up(stream, level)
    for method in (early.debug, early.info, early.warning, early.error):
        method("x")
    logs.set_up()
    assert len(lines(stream)) == shown


def test_an_unknown_level() -> None:
    with pytest.raises(InputError, match="log level 'loud': expected one of debug, info"):
        logs.set_up(level="loud")


def test_what_json_cannot_hold_is_shown_as_its_repr(stream: io.StringIO) -> None:
    loop: list[object] = []
    loop.append(loop)
    line = one(
        stream, path=Path("/x"), nan=float("nan"), inf=float("-inf"), raw=b"\xff", odd=Stubborn(),
        big=10**30, huge=10**5000, keys={(1, 2): {3}, 4: "x"}, lone="\ud800\0\n", loop=loop,
    )  # fmt: skip
    assert line["path"] == f"{Path('/x')!r}" and line["raw"] == repr(b"\xff")
    assert (line["nan"], line["inf"], line["big"]) == ("nan", "-inf", str(10**30))
    assert line["odd"] == "<Stubborn, whose repr raised RuntimeError>"
    assert line["huge"] == "<int, whose repr raised ValueError>"
    assert line["keys"] == {"(1, 2)": "{3}", "4": "x"}
    assert line["lone"] == "\ud800\0\n" and "loop" in line


def test_an_exception_is_one_line(stream: io.StringIO) -> None:
    try:
        raise ValueError("bad\nthing")
    except ValueError:
        logs.get().exception("failed")
    (line,) = lines(stream)
    assert line["level"] == "error" and "ValueError: bad\nthing" in line["exception"]


def test_secrets_are_masked(stream: io.StringIO) -> None:
    line = one(
        stream, token="hush", webhook_secret="hush", Password="hush", max_tokens=5,
        inside=[{"api_token": "hush", "tokens": [1]}], secret={"a": "hush"},
        error="postgresql://me:hush@host/db is away", odd={"postgresql://me:hush@host"},
    )  # fmt: skip
    assert "hush" not in stream.getvalue()
    assert (line["token"], line["Password"], line["secret"]) == ("***", "***", "***")
    assert line["max_tokens"] == 5 and line["inside"] == [{"api_token": "***", "tokens": [1]}]
    assert line["error"] == "postgresql://me:***@host/db is away"


def test_a_stream_that_is_gone_ends_nobody() -> None:
    closed = io.StringIO()
    closed.close()
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1, closefd=False) as broken, open("/dev/full", "w") as full:
        for stream in (closed, broken, full):
            logs.set_up(stream)
            logs.get().info("said")
        logs.set_up()
        for stream in (broken, full):
            with pytest.raises(OSError):
                stream.close()
    os.close(writer)


def test_an_ascii_stream_takes_everything(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as file:
        logs.set_up(file)
        logs.get().info("\u00e9 \ud800")
        logs.set_up()
    assert json.loads((tmp_path / "log").read_text())["event"] == "\u00e9 \ud800"


def test_lines_of_threads_and_processes_stay_whole(tmp_path: Path) -> None:
    def say(name: str) -> None:
        for number in range(200):
            logs.get(job=name).info("x" * 500, number=number)

    def child() -> None:
        threads = [threading.Thread(target=say, args=(f"{os.getpid()} {n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with (tmp_path / "log").open("a") as file:
        logs.set_up(file)
        children = [fork.Process(target=child) for _ in range(2)]
        for process in children:
            process.start()
        child()
        for process in children:
            process.join(60)
        logs.set_up()
    written = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(written) == 3 * 3 * 200
    assert len({line["pid"] for line in written}) == 3
    assert all(line["job"].startswith(f"{line['pid']} ") for line in written)
