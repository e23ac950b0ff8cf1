"""The channels: what goes over the wire, what a bad receiver can do, and where secrets stay."""

import hashlib
import hmac
import io
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from receiver import Receiver, receiving
from test_db import PAIR
from test_notices import after, posted, rows

from schedfuzz.db import notices, queries
from schedfuzz.db.connect import Store
from schedfuzz.db.notices import BACKOFF_SECONDS
from schedfuzz.service import logs, sending
from schedfuzz.service.notify import Channels, deliver

pytest_plugins = ["postgres"]
SECRET = "hush-\u00e9-very-hush"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A running receiver of the test's own."""
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.set_up(stream, "debug")
    yield stream
    logs.set_up()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "TIMEOUT", 1.0)


def test_a_webhook_gets_a_signed_finding(store: Store, receiver: Receiver) -> None:
    posted(store, 1)
    assert deliver(store, Channels(receiver.url, SECRET)) == (1, 0, 0)
    (got,) = receiver.got
    stamp = got.headers["x-schedfuzz-timestamp"]
    assert abs(int(stamp) - time.time()) < 60
    signed = stamp.encode() + b"." + got.raw
    mac = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert got.headers["x-schedfuzz-signature"] == f"sha256={mac}"
    assert got.path == "/hook/of-nobody-else"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["x-schedfuzz-event"] == "finding"
    assert got.body == {
        "event": "finding",
        "delivery": got.headers["x-schedfuzz-delivery"],
        "text": "regressed: title of f0 (0.28.0 -> 0.29.0, campaign night)",
        "campaign": {"id": 1, "name": "night", "canary": False},
        "finding": queries.finding_as_json(queries.get_finding(store, 1)),
        "export_path": None,
        "commands": {
            "show": "schedfuzz show 1", "replay": "schedfuzz replay 1 0.28.0 0.29.0",
            "export": "schedfuzz export 1 --out findings",
        },
        "more_waiting": 0,
    }  # fmt: skip


def test_without_a_secret_there_is_no_signature(store: Store, receiver: Receiver) -> None:
    posted(store, 1)
    assert deliver(store, Channels(receiver.url)).sent == 1
    assert "x-schedfuzz-signature" not in receiver.got[0].headers


def test_a_refused_notice_is_sent_again_under_its_id(store: Store, receiver: Receiver) -> None:
    posted(store, 2)
    receiver.answers = [500]
    channels = Channels(receiver.url, SECRET)
    start = after(0)
    assert deliver(store, channels, start) == (0, 1, 2)  # the second is spared a bad receiver
    first = rows(store)[0]
    assert (first.state, first.error) == ("waiting", "webhook: answered 500")
    assert deliver(store, channels, start) == (1, 0, 1)
    assert deliver(store, channels, start) == (0, 0, 1)
    assert deliver(store, channels, start + timedelta(seconds=BACKOFF_SECONDS)) == (1, 0, 0)
    one, two, again = receiver.deliveries
    assert one == again != two
    assert [(row.state, row.attempts, row.error) for row in rows(store)] == [
        ("sent", 2, None), ("sent", 1, None),
    ]  # fmt: skip


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308, 304, 400, 410])
def test_only_success_is_success(store: Store, receiver: Receiver, code: int) -> None:
    posted(store, 1)
    receiver.answers = [code]
    assert deliver(store, Channels(receiver.url)) == (0, 1, 1)
    assert [got.path for got in receiver.got] == ["/hook/of-nobody-else"]
    hint = "; redirects are not followed" if code < 400 else ""
    assert rows(store)[0].error == f"webhook: answered {code}{hint}"


@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_a_receiver_cannot_hold_us(
    store: Store, receiver: Receiver, hasty: None, answer: str
) -> None:
    posted(store, 1)
    receiver.answers = [answer]
    begun = time.monotonic()
    assert deliver(store, Channels(receiver.url)) == (0, 1, 1)
    assert time.monotonic() - begun < 12
    assert rows(store)[0].error == "webhook: no answer within 1 s"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new key and its self-signed certificate for 127.0.0.1, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        f"-subj /CN=here -addext subjectAltName=IP:127.0.0.1 -keyout {file} -out {file}.crt"
    )
    try:
        subprocess.run(command.split(), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    with file.open("ab") as both:
        both.write(Path(f"{file}.crt").read_bytes())
    return file


def test_tls_is_checked(
    store: Store, certificate: Path, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted(store, 2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with receiving(context) as receiver:
        channels = Channels(receiver.url)
        assert deliver(store, channels) == (0, 1, 2)
        assert "self-signed" in str(rows(store)[0].error) and receiver.got == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        receiver.answers = [200, "drip"]
        assert deliver(store, channels) == (1, 0, 1)
        begun = time.monotonic()
        assert deliver(store, channels, after(BACKOFF_SECONDS)) == (0, 1, 1)
        assert time.monotonic() - begun < 12
        assert rows(store)[0].error == "webhook: no answer within 1 s"
        assert len(receiver.got) == 2


def test_secrets_stay_where_they_are(store: Store, log: io.StringIO) -> None:
    posted(store, 2)
    assert notices.post_missing(store, ["command"]) == 2
    hidden = Channels("http://127.0.0.1:9/hook/of-nobody-else", SECRET, ("false",))
    assert deliver(store, hidden) == (0, 2, 4)
    said = repr(hidden) + log.getvalue() + "".join(str(row.error) for row in rows(store))
    assert "Connection refused" in said and "notice not delivered" in said
    assert "hush" not in said and "of-nobody-else" not in said


def script(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", f"import json, os, sys, time\n{text}"


def test_a_command_gets_the_finding(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted(store, 1, "command")
    for name in ("URL", "SECRET", "SECRET_FILE"):
        monkeypatch.setenv(f"SCHEDFUZZ_WEBHOOK_{name}", "hush")
    odd = "$(touch gone); `id` 'x"
    dump = (
        "json.dump([sys.argv[2:], json.load(sys.stdin), dict(os.environ)], open(sys.argv[1], 'w'))"
    )
    told = Channels(command=(*script(dump), str(tmp_path / "told"), odd))
    assert deliver(store, told) == (1, 0, 0)
    arguments, body, environment = json.loads((tmp_path / "told").read_text())
    assert arguments == [odd]
    assert body["finding"]["id"] == 1 and body["campaign"]["name"] == "night"
    mine = {name: value for name, value in environment.items() if name.startswith("SCHEDFUZZ_")}
    assert "hush" not in json.dumps(mine)
    expected = {
        "FINDING": "1", "VERDICT": "regressed", "BEFORE": PAIR[0], "AFTER": PAIR[1],
        "CAMPAIGN": "night", "DELIVERY": body["delivery"], "TEXT": body["text"],
    }  # fmt: skip
    assert {name: mine[f"SCHEDFUZZ_{name}"] for name in expected} == expected


@pytest.mark.parametrize(
    "command, error",
    [
        (script("print('x', file=sys.stderr); sys.exit('too bad')"), "ended with 1: too bad"),
        (script("os.kill(os.getpid(), 9)"), "ended with -9"),
        (script("os.close(0); time.sleep(60)"), "did not end within 1 s"),
        (("/nowhere/at-all",), "'/nowhere/at-all' cannot be started: No such file or directory"),
    ],
)
def test_a_command_that_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], error: str
) -> None:
    if "within" in error:
        monkeypatch.setattr(sending, "TIMEOUT", 1.0)
    posted(store, 1, "command")
    assert deliver(store, Channels(command=command)) == (0, 1, 1)
    assert rows(store)[0].error == f"command: {error}"
    again = after(BACKOFF_SECONDS)
    assert deliver(store, Channels(command=("true",)), again) == (1, 0, 0)


def test_a_late_command_takes_its_children_with_it(
    store: Store, tmp_path: Path, hasty: None
) -> None:
    posted(store, 1, "command")
    file = tmp_path / "pid"
    shell = f"sleep 600 & echo $! > {file}; wait"
    assert deliver(store, Channels(command=("sh", "-c", shell))) == (0, 1, 1)
    child = int(file.read_text())
    for _ in range(200):
        try:
            os.kill(child, 0)
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return
        if state == "Z":
            return  # dead; whoever adopted it has not looked yet
        time.sleep(0.05)
    raise AssertionError("the child lives")
