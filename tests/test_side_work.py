"""What the coordinator's process does besides: it prunes, tells, and survives its own faults."""

from datetime import UTC, datetime, timedelta

import pytest
from running import until
from sqlalchemy import update

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import queries
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Hunt
from schedfuzz.db.writes import finish_hunt, start_hunt
from schedfuzz.service import side_work
from schedfuzz.service.side_work import SideWork

pytest_plugins = ["postgres"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_work, "FIRST_PRUNE_SECONDS", 0.1)


def an_old_hunt(store: Store) -> None:
    number = start_hunt(store, "a", "b", 1, {})
    finish_hunt(store, number, "done", 1, 1.0)
    with store.write() as session:
        session.execute(update(Hunt).values(ended_at=datetime.now(UTC) - timedelta(days=400)))


def test_it_prunes_by_itself(store: Store) -> None:
    an_old_hunt(store)
    work = SideWork(store, "")
    work.start()
    until(lambda: queries.list_hunts(store) == [])
    work.stop()


def test_it_leaves_pruning_to_whoever_wants_to(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDFUZZ_PRUNE", "off")
    assert [thread.name for thread in SideWork(store, "")._threads] == ["notices"]
    monkeypatch.setenv("SCHEDFUZZ_PRUNE", "never")
    with pytest.raises(InputError, match="SCHEDFUZZ_PRUNE = 'never': write on or off"):
        SideWork(store, "")


@pytest.mark.parametrize("fault", [InfraError("away"), RuntimeError("ours")])
def test_a_fault_ends_one_turn_and_no_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    turns = []

    def failing(_: Store, __: object) -> None:
        turns.append(1)
        raise fault

    monkeypatch.setattr(side_work, "NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(side_work.notices, "post_missing", failing)
    work = SideWork(store, "")
    work.start()
    until(lambda: len(turns) >= 3)
    work.stop()
    assert not any(thread.is_alive() for thread in work._threads)
