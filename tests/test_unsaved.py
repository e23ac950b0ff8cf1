"""What a hunt of the service finds while its database is away."""

from pathlib import Path

import pytest
from found import list_findings
from test_db import PAIR, hunt, scenario, verdict

from schedfuzz.corpus.errors import InfraError
from schedfuzz.db import writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.service.recorder import LastingRecorder
from schedfuzz.service.unsaved import Sighted, Unsaved
from schedfuzz.workers.home import Home


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path}/x.db")


def away(*_: object, **__: object) -> None:
    raise InfraError("the database is away")


def save(store: Store, unsaved: Unsaved) -> int:
    def record(late: Sighted) -> None:
        writes.record_verdict(
            store, late.hunt, late.before, late.after, late.verdict, late.scenario, late.steps,
            late.execution, late.seconds, campaign_id=late.campaign,
        )  # fmt: skip

    return unsaved.save(record)


def test_it_is_saved_when_the_database_is_back(
    store: Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsaved = Unsaved(home, "postgresql://somewhere/x")
    recorder = LastingRecorder(store, hunt(store), *PAIR, None, unsaved)
    with monkeypatch.context() as outage:
        for name in ("record_verdict", "record_incident", "update_hunt", "finish_hunt"):
            outage.setattr(writes, name, away)
        assert recorder.sighting(verdict("a"), scenario(), 3, 7, 1.5) == (0, False)
        assert recorder.sighting(verdict("b"), scenario(2), 3, 8, 1.6) == (0, False)
        recorder.incident("killed", "0.28.0: by somebody", None)
        recorder.progress(9, 2.0)
        recorder.finish("done")
        with pytest.raises(InfraError):
            save(store, unsaved)
    assert list_findings(store) == []
    again = Unsaved(home, "postgresql://somewhere/x")  # by whoever hunts there next
    assert (save(store, again), save(store, again)) == (2, 0)
    found = {row.fingerprint: row for row in list_findings(store)}
    assert {name: row.count for name, row in found.items()} == {"a": 1, "b": 1}
    assert (found["a"].executions_to_find, found["a"].seconds_to_find) == (7, 1.5)


def test_what_could_not_be_saved_stays_and_comes_first(store: Store, home: Home) -> None:
    unsaved = Unsaved(home, "x")
    number = hunt(store)
    for name in "abc":
        unsaved.keep(Sighted(number, *PAIR, verdict(name), scenario(), 1, 1, 1.0, None))
    said: list[str] = []
    tried: list[str] = []

    def record(late: Sighted) -> None:
        tried.append(late.verdict.fingerprint)
        if tried == ["a", "b"]:
            raise InfraError("away again")
        said.append(late.verdict.fingerprint)

    with pytest.raises(InfraError):
        unsaved.save(record)
    assert unsaved.save(record) == 2
    assert said == ["a", "b", "c"]


def test_databases_do_not_mix_and_a_torn_line_is_nothing(store: Store, home: Home) -> None:
    one, other = Unsaved(home, "one"), Unsaved(home, "other")
    one.keep(Sighted(hunt(store), *PAIR, verdict(), scenario(), 1, 1, 1.0, None))
    assert save(store, other) == 0
    with one.path.open("ab") as file:
        file.write(b'{"hunt": 1, "bef')
    assert save(store, one) == 2
    assert [row.count for row in list_findings(store)] == [1]


def test_a_full_disk_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    unsaved = Unsaved(home, "x")
    unsaved.path.symlink_to("/dev/full")
    with pytest.raises(InfraError, match="No space left"):
        unsaved.keep(Sighted(1, *PAIR, verdict(), scenario(), 1, 1, 1.0, None))
