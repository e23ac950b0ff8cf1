"""What a place does with a job: ends it as it went, and never spoils what it has lost."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fabricated import SMALL
from test_coordinator import campaign, let_time_pass

from schedfuzz.corpus.codec import encode, scenario_id
from schedfuzz.corpus.errors import InfraError
from schedfuzz.db import jobs, nodes, rows, shared_corpus
from schedfuzz.db.connect import Store
from schedfuzz.db.service_models import Job
from schedfuzz.fuzzer.generate import generate
from schedfuzz.service import corpus_sync, keeping, triage, worker
from schedfuzz.service.corpus_sync import CorpusSync
from schedfuzz.service.keeping import Kept, kept
from schedfuzz.service.latest import Releases
from schedfuzz.workers.footprint import descendants, footprint
from schedfuzz.workers.home import Home

pytest_plugins = ["postgres"]
PAIR = ("0.28.0", "0.29.0")


def leased(store: Store) -> Kept:
    jobs.post(store, "hunt", "1/0", campaign_id=campaign(store).id)
    [job] = jobs.due(store, ("hunt",))
    lease = jobs.claim(store, job.id, "me", "n", 60)
    assert lease is not None
    return Kept(store, lease, 60)


def job(store: Store) -> Job:
    with store.read() as session:
        found = session.get(Job, 1)
    assert found is not None
    return found


def raises(error: BaseException) -> Any:
    def work(*_: object) -> dict[str, Any]:
        raise error

    return work


@pytest.mark.parametrize(
    "work, word, state, attempts",
    [
        (lambda *_: {"calls": 3}, "done", "done", 0),
        (raises(triage.Stopped()), "stopped", "waiting", 0),
        (raises(worker.Unfit("no disk")), "unfit", "waiting", 0),
        (raises(InfraError("no memory")), "failed", "waiting", 1),
    ],
)
def test_a_job_ends_as_its_work_did(
    home: Home, store: Store, work: Any, word: str, state: str, attempts: int
) -> None:
    assert worker._end(store, leased(store), work) == word
    row = job(store)
    assert (row.state, row.attempts) == (state, attempts)
    assert row.result == ({"calls": 3} if word == "done" else None)


def test_our_own_fault_is_counted_and_told(home: Home, store: Store) -> None:
    with pytest.raises(KeyError):
        worker._end(store, leased(store), raises(KeyError("x")))
    assert (job(store).attempts, job(store).error) == (1, "KeyError: 'x'")


def test_whoever_lost_a_job_cannot_end_it(home: Home, store: Store) -> None:
    keeper = leased(store)
    let_time_pass(store, 61)
    other = jobs.claim(store, keeper.lease.job_id, "other", "m", 60)
    assert other is not None
    assert worker._end(store, keeper, lambda *_: {}) == "lost"
    assert (job(store).owner, job(store).result) == ("other", None)


def test_a_kept_lease_outlives_its_length_and_notices_its_loss(store: Store) -> None:
    keeper = leased(store)
    with kept(store, keeper.lease, 1.0) as holder:
        threading.Event().wait(2.5)
        assert not holder.lost and jobs.due(store, ("hunt",)) == []
        assert jobs.give_back_others(store, "somebody") == 1
        threading.Event().wait(1.0)
        assert holder.lost


def test_an_absent_database_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([InfraError("away"), InfraError("away"), None])

    def act() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    monkeypatch.setattr(keeping.time, "sleep", lambda seconds: None)
    keeping.patiently(act, 60)
    with pytest.raises(InfraError):
        keeping.patiently(raises(InfraError("for ever")), 0)


def test_a_node_that_cannot_make_an_environment_is_unfit(
    home: Home, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "ensure", raises(InfraError("no space left")))
    nodes.seen(store, "n", "10.0.0.1", {})
    with pytest.raises(worker.Unfit):
        worker.prepare(store, home, "n", PAIR)
    assert nodes.unfit_nodes(store, ["0.28.0"]) == {"n"}
    assert nodes.unfit_nodes(store, ["0.29.0"]) == set()
    monkeypatch.setattr(worker, "ensure", lambda *_: None)
    worker.prepare(store, home, "n", PAIR)
    assert nodes.unfit_nodes(store, PAIR) == set()


# -- corpora -------------------------------------------------------------------------------------


def test_two_directories_come_to_hold_the_same(store: Store, tmp_path: Path) -> None:
    scenarios = [generate(Random(seed)) for seed in range(6)]
    syncs = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        for one in scenarios[3 * number : 3 * number + 3]:
            (folder / scenario_id(one)[:9]).write_bytes(encode(one))
        (folder / "no-scenario").write_text("{")
        syncs.append(CorpusSync(store, *PAIR, folder))
    for sync in (*syncs, *syncs):
        sync.turn()
    for sync in syncs:
        assert sync.kept == 6
        assert len(list(sync.directory.iterdir())) == 7
    gone = scenario_id(scenarios[0])
    shared_corpus.drop(store, *PAIR, [gone])
    for sync in syncs:
        sync.turn()
        assert len(list(sync.directory.iterdir())) == 6


def test_of_many_additions_some_come_at_a_time(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    sync = CorpusSync(store, *PAIR, folder)
    sync.turn()
    count = corpus_sync.TAKEN + 5
    shared_corpus.add(store, *PAIR, [generate(Random(seed)) for seed in range(count)])
    sync.turn()
    assert (sync.kept, len(list(folder.iterdir()))) == (count, corpus_sync.TAKEN)
    sync.turn()
    assert len(list(folder.iterdir())) == count
    late = tmp_path / "late"
    late.mkdir()
    CorpusSync(store, *PAIR, late).turn()  # a hunt begins with all there is
    assert len(list(late.iterdir())) == count


@pytest.mark.parametrize("later", [corpus_sync.WHOLE, timedelta(hours=-2)])
def test_a_whole_reading_sees_what_a_slow_clock_wrote(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: timedelta
) -> None:
    sync = CorpusSync(store, *PAIR, tmp_path)
    sync.turn()
    present = datetime.now(UTC)
    with monkeypatch.context() as patch:
        patch.setattr(rows, "now", lambda: present - timedelta(hours=1))
        shared_corpus.add(store, *PAIR, [SMALL])
    sync.turn()
    assert sync.kept == 0
    monkeypatch.setattr(rows, "now", lambda: present + later)
    sync.turn()
    assert sync.kept == 1


def test_a_full_disk_costs_what_would_have_come(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_corpus.add(store, *PAIR, [SMALL])
    folder = tmp_path / "corpus"
    folder.mkdir()
    sync = CorpusSync(store, *PAIR, folder)
    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        real(self, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    sync.turn()
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    sync.turn()
    [file] = folder.iterdir()
    assert file.read_bytes() == encode(SMALL)


# -- small things --------------------------------------------------------------------------------


def test_latest_is_asked_for_now_and_then() -> None:
    answers = iter(["0.32.0", InfraError("no network"), "0.33.0"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    releases = Releases(ask)
    assert releases.resolve("0.28.0:real") == "0.28.0:real"
    assert (releases.resolve("latest"), releases.resolve("latest:real")) == (
        "0.32.0", "0.32.0:real",
    )  # fmt: skip
    releases._asked -= 4000
    assert releases.resolve("latest") == "0.32.0"  # the index was away
    releases._asked -= 4000
    assert releases.resolve("latest") == "0.33.0"
    with pytest.raises(InfraError):
        Releases(raises(InfraError("no network"))).resolve("latest")


def test_a_footprint_counts_children(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    code = "import sys; x = b'x' * (64 << 20); print('up', flush=True); sys.stdin.read()"
    before = footprint(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        assert child.pid in descendants(os.getpid())
        assert footprint(os.getpid()) - before > 60 << 20
    assert footprint(child.pid) == 0
