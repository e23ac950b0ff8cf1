"""The verbs for what the service holds back: quarantined scenarios, notices that failed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select, update
from test_db import PAIR, scenario
from test_notices import posted

from schedfuzz.cli.main import cli, run
from schedfuzz.corpus import codec
from schedfuzz.db import notices, poison
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.service_models import Notice


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    url = f"sqlite:///{tmp_path / 'service.db'}"
    monkeypatch.setenv("SCHEDFUZZ_DB", url)
    return open_store(url)


def type_in(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_a_quarantined_scenario_is_listed_and_forgiven_by_how_its_id_begins(store: Store) -> None:
    bad, other = scenario(2), scenario(1)
    for _ in range(poison.DEATHS):
        poison.blame(store, *PAIR, bad, "signal 9 \x1b[31m")
    poison.blame(store, *PAIR, other, "signal 9")
    name = codec.scenario_id(bad)
    lines = type_in("corpus", "quarantine").output.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["watched", "quarantined"]
    assert lines[1].startswith(name[:16]) and "\x1b" not in lines[1]
    listed = json.loads(type_in("corpus", "quarantine", "--json").output)
    assert [row["scenario"] for row in listed] == [codec.scenario_id(other), name]
    assert "may run again" in type_in("corpus", "forgive", name[:10]).output
    assert [row.scenario_id for row in poison.listed(store)] == [codec.scenario_id(other)]


@pytest.mark.parametrize("named", ["f00d", "", "\x1b"])
def test_a_scenario_that_cost_nothing_is_not_forgiven(
    store: Store, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    poison.blame(store, *PAIR, scenario(1), "signal 9")
    assert run(["corpus", "forgive", named]) == 2
    said = capsys.readouterr().err
    assert "cost no campaign a worker" in said and "corpus quarantine" in said
    assert len(poison.listed(store)) == 1


def state(store: Store, number: int, **values: object) -> None:
    with store.write() as session:
        session.execute(update(Notice).where(Notice.id == number).values(values))


def test_failed_notices_are_tried_again_and_sent_ones_are_not(store: Store) -> None:
    posted(store, 4)
    state(store, 1, state="failed", attempts=12, error="refused \x1b[31m")
    state(store, 2, state="sent", attempts=1)
    claim = notices.claim(store, "webhook", 9)  # on its way
    assert claim is not None and claim.notice_id == 3
    lines = type_in("notices", "list").output.splitlines()
    assert [line.split("\t")[3] for line in lines] == ["waiting", "waiting", "sent", "failed"]
    assert "refused" in lines[3] and "\x1b" not in lines[3]
    assert [row["id"] for row in json.loads(type_in("notices", "list", "--json").output)] == [
        4, 3, 2, 1,
    ]  # fmt: skip
    failed = type_in("notices", "list", "--state", "failed", "--json").output
    assert [row["attempts"] for row in json.loads(failed)] == [12]
    assert type_in("notices", "retry").output == "1 notices\twaiting\n"
    assert type_in("notices", "retry").output == "0 notices\twaiting\n"
    assert type_in("notices", "retry", "2", "3", "4").output == "1 notices\twaiting\n"
    with store.read() as session:
        rows = session.execute(
            select(Notice.state, Notice.attempts).order_by(Notice.id)
        ).all()  # fmt: skip
    assert rows == [("waiting", 0), ("sent", 1), ("waiting", 1), ("waiting", 0)]
    assert [row.id for row in notices.due(store, 9)] == [1, 4]


def test_an_unknown_notice_is_named(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    posted(store, 1)
    state(store, 1, state="failed", attempts=12, error="refused")
    assert run(["notices", "retry", "1", "7"]) == 2
    assert "notice 7" in capsys.readouterr().err
    assert notices.counts(store)["failed"] == 1, "nothing is half done"
