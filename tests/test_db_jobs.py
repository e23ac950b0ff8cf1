"""Jobs: whose turn it is, what a lost lease is worth, and clocks that jump."""

import threading
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sqlalchemy import select, update
from test_db import hunt, record, scenario, verdict
from test_db_campaigns import add
from test_db_writers import fork, in_processes

from schedfuzz.db import campaigns, jobs, rows
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.jobs import BACKOFF_CAP, BACKOFF_SECONDS, MAX_ATTEMPTS, MAX_LEASE, Lease
from schedfuzz.db.service_models import Job

pytest_plugins = ["postgres"]


def job(store: Store, job_id: int = 1) -> Job:
    with store.read() as session:
        return session.scalars(select(Job).filter_by(id=job_id)).one()


def change(store: Store, job_id: int = 1, **columns: object) -> None:
    with store.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(columns))


def after(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def claimed(store: Store, job_id: int = 1, owner: str = "one") -> Lease:
    lease = jobs.claim(store, job_id, owner, "here", 60)
    assert lease is not None
    return lease


def due(store: Store, *kinds: str) -> list[int]:
    return [row.id for row in jobs.due(store, kinds or ("hunt", "minimize"))]


def refused(store: Store, lost: Lease) -> bool:
    """Whether nothing works with the lease, and nothing changes."""
    names = [column.key for column in Job.__table__.columns]
    before = [getattr(job(store), name) for name in names]
    worked = (
        jobs.renew(store, lost, 60), jobs.finish(store, lost, {"late": True}),
        jobs.fail(store, lost, "late"), jobs.give_back(store, lost),
    )  # fmt: skip
    return not any(worked) and before == [getattr(job(store), name) for name in names]


def test_the_database_says_what_time_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = datetime(2001, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(rows, "now", lambda: wrong)
    with store.read() as session:
        here = jobs.moment(session)
        assert here.utcoffset() == timedelta(0)
        if store.engine.dialect.name == "sqlite":
            assert here == wrong
        else:  # and the clock goes on within a transaction
            assert abs(here - datetime.now(UTC)) < timedelta(minutes=1)
            assert jobs.moment(session) > here


def test_a_job_is_posted_once(store: Store) -> None:
    assert jobs.post(store, "hunt", "a") and jobs.post(store, "hunt", "b")
    assert jobs.post(store, "minimize", "a")
    assert not any(jobs.post(store, "hunt", "a") for _ in range(3))
    assert jobs.post(store, "hunt", "nul \0 lone \ud800")
    assert not jobs.post(store, "hunt", "nul \0 lone \ud800")
    assert due(store) == [1, 2, 3, 4]  # ids are dense on both dialects
    assert due(store, "minimize") == [3] and due(store, "export") == []
    assert [row.id for row in jobs.due(store, ["hunt"], limit=2)] == [1, 2]
    assert job(store, 4).subject == "nul \\x00 lone \\ud800"


def test_a_job_is_claimed_and_finished(store: Store) -> None:
    campaign = add(store, "c")
    found, _ = record(store, hunt(store), verdict(), scenario())
    jobs.post(store, "minimize", "a", campaign_id=campaign.id, finding_id=found)
    lease = claimed(store)
    assert lease == Lease(1, 1, "minimize", "a", campaign.id, found, 0)
    assert due(store) == [] and jobs.claim(store, 1, "two", "there", 60) is None
    row = job(store)
    assert (row.state, row.owner, row.node) == ("running", "one", "here")
    assert row.lease_until is not None and after(50) < row.lease_until < after(60)
    assert jobs.renew(store, lease, 600)
    assert (job(store).lease_until or after(0)) > after(590)
    odd = {"text": "nul \0 lone \ud800", "number": 1.5}
    assert jobs.finish(store, lease, odd)
    row = job(store)
    assert (row.state, row.result, row.error, row.owner) == ("done", odd, None, None)
    assert row.ended_at is not None and row.lease_until is None
    assert due(store) == [] and jobs.claim(store, 1, "two", "there", 60) is None
    assert jobs.claim(store, 2, "two", "there", 60) is None  # there is none


def test_a_lost_lease_changes_nothing(store: Store) -> None:
    jobs.post(store, "hunt", "a")
    lost = claimed(store)
    change(store, lease_until=after(-1))
    kept = claimed(store, owner="two")
    assert (kept.token, kept.attempts) == (2, 1)
    assert refused(store, lost)
    assert jobs.finish(store, kept, {})
    assert refused(store, lost) and refused(store, kept)  # what has ended is as lost
    assert jobs.reopen(store, "hunt", "a") and refused(store, kept)


def test_a_failing_job_waits_ever_longer_then_fails(store: Store) -> None:
    jobs.post(store, "hunt", "a")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        lease = claimed(store)
        assert lease.attempts == attempt - 1
        assert jobs.fail(store, lease, f"nul \0 {attempt}")
        row = job(store)
        assert row.attempts == attempt and row.error and f"nul \\x00 {attempt}" in row.error
        if attempt < MAX_ATTEMPTS:
            wait = min(BACKOFF_SECONDS * 2 ** (attempt - 1), BACKOFF_CAP)
            assert (row.state, row.owner) == ("waiting", None)
            assert after(wait - 5) < row.not_before < after(wait)
            assert due(store) == [] and jobs.claim(store, 1, "two", "there", 60) is None
            change(store, not_before=after(-1))
            assert due(store) == [1]
    assert row.state == "failed" and row.ended_at is not None
    assert row.error == f"given up after 5 attempts; the last one: nul \\x00 {MAX_ATTEMPTS}"
    assert due(store) == [] and jobs.claim(store, 1, "two", "there", 60) is None


def test_a_backoff_has_a_cap(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_ATTEMPTS", 10_000)
    jobs.post(store, "hunt", "a")
    change(store, attempts=900)
    assert jobs.fail(store, claimed(store), "again")
    assert after(BACKOFF_CAP - 5) < job(store).not_before < after(BACKOFF_CAP)


def test_expired_leases_count_and_the_last_fails_the_job(store: Store) -> None:
    jobs.post(store, "hunt", "a")
    for attempt in range(MAX_ATTEMPTS):
        assert claimed(store).attempts == attempt
        change(store, lease_until=after(-1))
        assert due(store) == [1]
    assert jobs.claim(store, 1, "two", "there", 60) is None
    row = job(store)
    assert (row.state, row.attempts, row.token) == ("failed", MAX_ATTEMPTS, MAX_ATTEMPTS)
    assert row.error == (
        "given up after 5 attempts; the last one: its lease ran out, held by one on here"
    )
    assert due(store) == []


def test_an_expired_lease_that_nobody_took_is_still_held(store: Store) -> None:
    jobs.post(store, "hunt", "a")
    lease = claimed(store)
    change(store, lease_until=after(-1))
    assert jobs.renew(store, lease, 60)
    assert due(store) == []
    change(store, lease_until=after(-1))
    assert jobs.finish(store, lease, {})


def test_what_is_given_back_is_due_at_once_and_no_attempt(store: Store) -> None:
    for name in "abcd":
        jobs.post(store, "hunt", name)
    lease = claimed(store)
    assert jobs.give_back(store, lease)
    assert due(store) == [1, 2, 3, 4]
    assert claimed(store) == lease._replace(token=2)
    claimed(store, 2, "own")
    claimed(store, 3, "one two")
    jobs.finish(store, claimed(store, 4, "two"), {})
    assert jobs.give_back_others(store, "own") == 2
    assert due(store) == [1, 3] and job(store, 2).owner == "own"
    assert (job(store).attempts, job(store).owner, job(store).lease_until) == (0, None, None)
    assert jobs.give_back_others(store, "own") == 0
    assert jobs.give_back_others(store, "ow") == 1


def test_only_what_ended_is_reopened(store: Store) -> None:
    jobs.post(store, "hunt", "a")
    assert not jobs.reopen(store, "hunt", "a")
    lease = claimed(store)
    assert not jobs.reopen(store, "hunt", "a")
    jobs.finish(store, lease, {"n": 1})
    assert not jobs.reopen(store, "minimize", "a") and not jobs.reopen(store, "hunt", "b")
    assert jobs.reopen(store, "hunt", "a")
    change(store, attempts=MAX_ATTEMPTS - 1)
    jobs.fail(store, claimed(store), "again")
    assert job(store).state == "failed"
    assert jobs.reopen(store, "hunt", "a") and not jobs.reopen(store, "hunt", "a")
    row = job(store)
    assert (row.state, row.attempts, row.error, row.ended_at) == ("waiting", 0, None, None)
    assert due(store) == [1] and claimed(store).token == 3


def test_only_active_campaigns_have_due_jobs_and_priority_goes_first(store: Store) -> None:
    for number, priority in enumerate([-1, 5, 0, 9], start=1):
        add(store, f"c{number}", priority=priority)
    for name in "ab":
        for campaign_id in (1, 2, 3, 4, None):
            jobs.post(store, "hunt", f"{name} {campaign_id}", campaign_id=campaign_id)
    assert due(store) == [4, 9, 2, 7, 3, 5, 8, 10, 1, 6]
    campaigns.set_state(store, "c4", "paused")
    campaigns.set_state(store, "c2", "done")
    campaigns.set_state(store, "c1", "removed")
    assert due(store) == [3, 5, 8, 10]
    assert jobs.claim(store, 4, "one", "here", 60) is None
    campaigns.set_state(store, "c4", "active")
    assert claimed(store, 4).campaign_id == 4


@pytest.mark.parametrize("beyond", [False, True])
def test_a_clock_that_jumped_back_blocks_nobody(store: Store, beyond: bool) -> None:
    jobs.post(store, "hunt", "a")
    slack = 30 if beyond else -30
    change(store, not_before=after(BACKOFF_CAP + slack))
    assert due(store) == [1] * beyond
    assert (jobs.claim(store, 1, "one", "here", MAX_LEASE) is not None) == beyond
    change(store, not_before=after(-1))
    assert bool(jobs.claim(store, 1, "one", "here", MAX_LEASE)) != beyond
    assert due(store) == []
    change(store, lease_until=after(MAX_LEASE + slack))
    assert due(store) == [1] * beyond
    assert (jobs.claim(store, 1, "two", "here", 60) is not None) == beyond


@pytest.mark.parametrize("seconds", [0, -1, MAX_LEASE + 1, float("nan")])
def test_a_lease_has_bounds(store: Store, seconds: float) -> None:
    jobs.post(store, "hunt", "a")
    with pytest.raises(ValueError, match="at most 900"):
        jobs.claim(store, 1, "one", "here", seconds)
    lease = claimed(store)
    with pytest.raises(ValueError, match="at most 900"):
        jobs.renew(store, lease, seconds)


def test_a_claim_that_waited_for_another_s_sees_it(store: Store) -> None:
    jobs.post(store, "hunt", "a")
    got: list[Lease | None] = []
    late = threading.Thread(target=lambda: got.append(jobs.claim(store, 1, "two", "there", 60)))
    with store.write() as session:
        taken = {"state": "running", "owner": "one", "token": 1, "lease_until": after(60)}
        session.execute(update(Job).values(taken))
        late.start()
        late.join(0.5)  # long enough to reach the lock
        assert late.is_alive()
    late.join(30)
    assert got == [None] and job(store).owner == "one"


def work(index: int, url: str, folder: Path, together: Barrier) -> None:
    store = open_store(url)
    together.wait(60)
    mine: list[int] = []
    while waiting := jobs.due(store, ["hunt"], limit=20):
        for row in waiting:
            lease = jobs.claim(store, row.id, f"worker {index}", "here", 600)
            if lease is not None:
                mine.append(lease.job_id)
                assert jobs.finish(store, lease, {"by": index})
    (folder / str(index)).write_text(" ".join(map(str, mine)))
    store.close()


def test_eight_workers_do_each_job_exactly_once(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    for number in range(200):
        jobs.post(store, "hunt", str(number))
    store.close()
    in_processes(work, url, tmp_path, fork.Barrier(8))
    shares = {n: [int(text) for text in (tmp_path / str(n)).read_text().split()] for n in range(8)}
    assert sorted(sum(shares.values(), [])) == list(range(1, 201))
    store = open_store(url)
    for index, share in shares.items():
        for job_id in share:
            row = job(store, job_id)
            assert (row.state, row.token, row.attempts) == ("done", 1, 0)
            assert row.result == {"by": index}
    store.close()


def post_all(index: int, url: str, folder: Path, together: Barrier) -> None:
    store = open_store(url)
    together.wait(60)
    new = [jobs.post(store, "hunt", str(number)) for number in range(50)]
    (folder / str(index)).write_text(str(sum(new)))
    store.close()


def test_a_job_posted_by_eight_at_once_is_one(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    in_processes(post_all, url, tmp_path, fork.Barrier(8))
    assert sum(int((tmp_path / str(n)).read_text()) for n in range(8)) == 50
    assert len(jobs.due(store, ["hunt"], limit=1000)) == 50
    store.close()
