"""Nouns: job, lease, moment, attempt, backoff.

Whoever claims a job may die, hang or come back late. The key insight: only the database says what
time it is and whose turn it is, so one that lost its lease can neither finish nor spoil the job,
whatever it and its own clock believe.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, or_, select, update
from sqlalchemy.orm import Session

from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.models import UtcDateTime
from schedfuzz.db.service_models import Campaign, Job, JobKind, JobState

MAX_LEASE = 900.0  # seconds, as all of these
BACKOFF_SECONDS = 10.0
BACKOFF_CAP = 600.0
MAX_ATTEMPTS = 5


class Lease(NamedTuple):
    """The right to work on a job until it runs out; `attempts` is how many came to nothing yet."""

    job_id: int
    token: int
    kind: JobKind
    subject: str
    campaign_id: int | None
    finding_id: int | None
    attempts: int


def moment(session: Session) -> datetime:
    """Return the database's present moment, in UTC, as the session's transaction goes on."""
    # Connecting begins the transaction, and on SQLite that may wait for another writer's end.
    if session.connection().dialect.name == "sqlite":
        return rows.now()
    return session.execute(select(func.clock_timestamp(type_=UtcDateTime()))).scalar_one()


def post(
    store: Store, kind: JobKind, subject: str, *,
    campaign_id: int | None = None, finding_id: int | None = None,
) -> bool:  # fmt: skip
    """Store a waiting job unless there is one of that kind and subject; return whether it is new.

    A job that ended is there too: see `reopen`.
    """
    key = {"kind": kind, "subject": rows.clean(subject)}
    with store.write() as session:
        # Looked up first: a tried insert uses up one id, and the same jobs are posted for ever.
        if session.scalar(select(Job.id).filter_by(**key)) is not None:
            return False
        now = moment(session)
        insert = rows.insert(session, Job).values(
            **key, campaign_id=campaign_id, finding_id=finding_id, not_before=now, created_at=now
        )
        insert = insert.on_conflict_do_nothing(index_elements=list(key))
        return session.scalar(insert.returning(Job.id)) is not None


def reopen(store: Store, kind: JobKind, subject: str) -> bool:
    """Let a job that is done or failed wait again, as if new; return whether it was one.

    Its last result stays until the next.
    """
    with store.write() as session:
        ended = select(Job).filter_by(kind=kind, subject=rows.clean(subject)).with_for_update()
        job = session.scalar(ended.where(Job.state.in_(("done", "failed"))))
        if job is None:
            return False
        job.attempts, job.error, job.ended_at = 0, None, None
        _let_go(job, "waiting")
        job.not_before = moment(session)
    return True


def due(store: Store, kinds: Sequence[JobKind], limit: int = 100) -> list[Job]:
    """Return the jobs that can be claimed now, those of the campaign of highest priority first.

    A job without a campaign has priority 0; within a priority, the oldest comes first.
    """
    with store.read() as session:
        query = _claimable(moment(session)).where(Job.kind.in_(kinds))
        priority = func.coalesce(Campaign.priority, 0)
        return list(session.scalars(query.order_by(priority.desc(), Job.id).limit(limit)))


def claim(store: Store, job_id: int, owner: str, node: str, seconds: float) -> Lease | None:
    """Return a lease of that many seconds, None when the job is not due (any more).

    An expired lease counts as an attempt that came to nothing; the last of them fails the job.
    Raises ValueError for `seconds` out of bounds.
    """
    length = _length(seconds)
    with store.write() as session:
        # On its own: a join that had to wait for the lock would see the campaign as it was.
        session.execute(select(Job.id).where(Job.id == job_id).with_for_update())
        now = moment(session)
        job: Job | None = session.scalar(_claimable(now).where(Job.id == job_id))
        if job is None:
            return None
        if job.state == "running":
            _count_attempt(job, now, f"its lease ran out, held by {job.owner} on {job.node}")
            if job.attempts >= MAX_ATTEMPTS:
                return None
        job.state, job.owner, job.node = "running", rows.clean(owner), rows.clean(node)
        job.token += 1
        job.lease_until = now + length
        return Lease(
            job.id, job.token, job.kind, job.subject, job.campaign_id, job.finding_id, job.attempts
        )


def renew(store: Store, lease: Lease, seconds: float) -> bool:
    """Let the lease end that many seconds from now; return False if it was lost.

    Raises ValueError for `seconds` out of bounds.
    """
    length = _length(seconds)
    with store.write() as session:
        if job := _held(session, lease):
            job.lease_until = moment(session) + length
    return job is not None


def finish(store: Store, lease: Lease, result: dict[str, Any]) -> bool:
    """End the job as done, with its result; return False if the lease was lost."""
    with store.write() as session:
        if job := _held(session, lease):
            # No rows.clean: JSON spells what a text column cannot hold as escapes.
            job.result, job.error, job.ended_at = result, None, moment(session)
            _let_go(job, "done")
    return job is not None


def fail(store: Store, lease: Lease, error: str) -> bool:
    """Count an attempt that came to nothing; return False if the lease was lost.

    The job waits for its next attempt, twice as long each time; after the last it is failed.
    """
    with store.write() as session:
        if job := _held(session, lease):
            _try_later(job, moment(session), error)
    return job is not None


def abandon(store: Store, job_id: int, owner: str, error: str) -> bool:
    """Fail a job for a process of its owner's that died; return False if the owner has lost it."""
    with store.write() as session:
        job = session.get(Job, job_id, with_for_update=True)
        held = job is not None and job.state == "running" and job.owner == rows.clean(owner)
        if job is not None and held:
            _try_later(job, moment(session), error)
    return held


def give_back(store: Store, lease: Lease) -> bool:
    """Let the job wait again, due at once and no attempt counted; False if the lease was lost."""
    with store.write() as session:
        if job := _held(session, lease):
            _let_go(job, "waiting")
            job.not_before = moment(session)
    return job is not None


def give_back_others(store: Store, keep: str) -> int:
    """Give back every running job that `keep` does not own; return how many.

    For a coordinator that starts: what its predecessors held is free at once.
    """
    others = select(Job.id).where(Job.state == "running", Job.owner.is_distinct_from(keep))
    with store.write() as session:
        # Locked in one order, so that two coordinators that start at once cannot deadlock.
        ids = list(session.scalars(others.order_by(Job.id).with_for_update()))
        free = {"state": "waiting", "owner": None, "node": None, "lease_until": None}
        values = {**free, "not_before": moment(session)}
        session.execute(update(Job).where(Job.id.in_(ids)).values(values))
    return len(ids)


def _claimable(now: datetime) -> Select[Any]:
    """Return the query of jobs that can be claimed at `now`, joined with their campaigns.

    A lease or a wait longer than any we give came from a clock that has jumped back since.
    """
    longest_wait = now + timedelta(seconds=BACKOFF_CAP)
    longest_lease = now + timedelta(seconds=MAX_LEASE)
    passed = or_(Job.not_before <= now, Job.not_before > longest_wait)
    expired = or_(
        Job.lease_until.is_(None), Job.lease_until <= now, Job.lease_until > longest_lease
    )
    free = or_(and_(Job.state == "waiting", passed), and_(Job.state == "running", expired))
    wanted = or_(Job.campaign_id.is_(None), Campaign.state == "active")
    return select(Job).outerjoin(Campaign, Job.campaign_id == Campaign.id).where(free, wanted)


def _held(session: Session, lease: Lease) -> Job | None:
    """Return the lease's job, locked, or None if the lease was lost."""
    job = session.get(Job, lease.job_id, with_for_update=True)
    return job if job and job.state == "running" and job.token == lease.token else None


def _count_attempt(job: Job, now: datetime, error: str) -> None:
    job.attempts += 1
    job.error = rows.clean(error)
    if job.attempts >= MAX_ATTEMPTS:
        job.error = f"given up after {job.attempts} attempts; the last one: {job.error}"
        job.ended_at = now
        _let_go(job, "failed")


def _try_later(job: Job, now: datetime, error: str) -> None:
    _count_attempt(job, now, error)
    if job.state != "failed":
        _let_go(job, "waiting")
        wait = min(BACKOFF_SECONDS * 2 ** (job.attempts - 1), BACKOFF_CAP)
        job.not_before = now + timedelta(seconds=wait)


def _let_go(job: Job, state: JobState) -> None:
    job.state, job.owner, job.node, job.lease_until = state, None, None, None


def _length(seconds: float) -> timedelta:
    if not 0 < seconds <= MAX_LEASE:
        raise ValueError(f"a lease of {seconds} s: expected more than 0, at most {MAX_LEASE}")
    return timedelta(seconds=seconds)
