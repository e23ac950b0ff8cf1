"""The dashboard's pages answer, as pages and as JSON, and what came from a target stays text."""

from pathlib import Path

import pytest
from flask.testing import FlaskClient

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


def test_nothing_can_be_written(client: FlaskClient) -> None:
    assert client.post("/findings").status_code == 405
