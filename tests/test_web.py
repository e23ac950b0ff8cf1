"""The dashboard's pages answer, as pages and as JSON, and what came from a target stays text."""

import re
from pathlib import Path

import pytest
from fabricated import SMALL
from flask.testing import FlaskClient

from schedfuzz.cli.main import run
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import writes
from schedfuzz.db.connect import open_store
from schedfuzz.web.app import create


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    store = open_store(f"sqlite:///{tmp_path / 'web.db'}")
    return create(store).test_client()


@pytest.mark.parametrize("path", ["/", "/findings", "/healthz", "/findings?page=99999999999"])
def test_a_page_answers(client: FlaskClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/findings"])
def test_the_same_url_is_json(client: FlaskClient, path: str) -> None:
    assert client.get(path + "?format=json").is_json
    assert client.get(path, headers={"Accept": "application/json"}).is_json


def test_an_unknown_finding_is_said_to_be_unknown(client: FlaskClient) -> None:
    answer = client.get("/findings/7?format=json")
    assert answer.status_code == 404
    assert "finding 7" in answer.get_json()["error"]


def test_markup_in_a_filter_stays_text(client: FlaskClient) -> None:
    text = client.get("/findings", query_string={"before": '"><script>x</script>'}).text
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_nothing_can_be_written_without_a_token(client: FlaskClient) -> None:
    assert client.post("/findings").status_code == 405
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"}):
        answer = client.post("/findings/1", json={"verb": "invalid"}, headers=headers)
        assert answer.status_code in (401, 403)
    assert client.post("/sign-in", data={"token": ""}).status_code == 403


@pytest.mark.parametrize("query", ["sort=age", "page=x", "page=²", "page=99999999999999999999"])
def test_a_query_that_makes_no_sense_is_refused(client: FlaskClient, query: str) -> None:
    answer = client.get(f"/findings?{query}&format=json")
    assert answer.status_code == 400 and answer.get_json()["error"]


def test_a_finding_prints_commands_that_run(filled: FlaskClient) -> None:
    page = filled.get("/findings/1").text
    assert "schedfuzz replay 1 0.28.0 0.29.0<" in page
    assert "schedfuzz replay 2 0.28.0+PATH/TO/x.py:f 0.29.0<" in filled.get("/findings/2").text


# -- decisions -----------------------------------------------------------------------------------

TOKEN = "a-token-that-nobody-guesses"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def filled(tmp_path: Path) -> FlaskClient:
    store = open_store(f"sqlite:///{tmp_path / 'web.db'}")
    for before in ("0.28.0", "0.28.0+x.py:f@0123abcd"):
        hunt = writes.start_hunt(store, before, "0.29.0", 1, {})
        verdict = Verdict("fixed", "contract", "token-budget", "a", "a title", "9 > 8")
        writes.record_verdict(store, hunt, before, "0.29.0", verdict, SMALL, 3, 17, 2.5)
    return create(store, TOKEN).test_client()


def status(client: FlaskClient) -> str:
    return str(client.get("/findings/1?format=json").get_json()["status"])


@pytest.mark.parametrize(
    ("fields", "became"),
    [
        ({"verb": "report", "note": "PR 5"}, "reported"),
        ({"verb": "resolve", "target": "0.29.0"}, "fixed-in"),
        ({"verb": "dup", "of": 2}, "dup"),
        ({"verb": "mute", "days": "3"}, "muted"),
        ({"verb": "invalid"}, "invalid"),
        ({"verb": "note", "note": "x"}, "new"),
    ],
)
def test_a_program_decides_with_the_token(filled: FlaskClient, fields, became) -> None:
    answer = filled.post("/findings/1?format=json", json=fields | {"by": "bot"}, headers=BEARER)
    assert (answer.status_code, answer.get_json()) == (200, {"id": 1, "status": became})
    [entry] = filled.get("/findings/1?format=json").get_json()["decisions"]
    assert (entry["verb"], entry["actor"]) == (fields["verb"], "bot")
    if became != "new":
        filled.post("/findings/1", json={"verb": "reopen"}, headers=BEARER)
        assert status(filled) == "new"


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"verb": "drop"}, {"verb": "mute", "days": "0"}, {"verb": "mute", "days": "x"},
        {"verb": "dup", "of": "1"}, {"verb": "dup"}, {"verb": "resolve", "target": " "},
        {"verb": "reopen"}, [1],
    ],
)  # fmt: skip
def test_what_makes_no_sense_changes_nothing(filled: FlaskClient, fields) -> None:
    answer = filled.post("/findings/1?format=json", json=fields, headers=BEARER)
    assert answer.status_code == 400 and answer.get_json()["error"]
    assert status(filled) == "new"
    assert filled.post("/findings/9", json={"verb": "invalid"}, headers=BEARER).status_code == 404


def test_a_form_needs_the_session_and_its_secret(filled: FlaskClient) -> None:
    form = {"verb": "invalid", "csrf": "x"}
    assert filled.post("/findings/1", data=form).status_code == 401
    assert filled.post("/sign-in", data={"token": TOKEN + "x"}).status_code == 401
    signed = filled.post("/sign-in", data={"token": TOKEN, "name": "ann"})
    assert signed.status_code == 303
    cookie = signed.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    for wrong in ({"verb": "invalid"}, form, form | {"csrf": "é"}):
        assert filled.post("/findings/1", data=wrong).status_code == 403
    assert status(filled) == "new"
    csrf = re.search(r'name="csrf" value="([^"]+)"', filled.get("/findings/1").text)
    assert csrf is not None
    sent = filled.post("/findings/1", data={"verb": "invalid", "note": "x", "csrf": csrf[1]})
    assert (sent.status_code, status(filled)) == (303, "invalid")
    assert filled.post("/sign-out", data={"csrf": csrf[1]}).status_code == 303
    assert filled.post("/findings/1", data={"verb": "reopen", "csrf": csrf[1]}).status_code == 401


@pytest.mark.parametrize("text", ["", "short", None])
def test_a_token_file_that_holds_none_is_refused(tmp_path: Path, capsys, text) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    db = f"sqlite:///{tmp_path / 'web.db'}"
    assert run(["serve", "--token-file", str(file), "--db", db]) == 2
    assert capsys.readouterr().err.startswith(f"schedfuzz: --token-file {file}: ")
