"""Nouns: notice, channel, claim, backoff.

The outbox: what must be told is stored before anybody tells it. The key insight: whoever would
deliver a notice first claims it, in one transaction that also counts what the hour has seen, so
that any number of processes send each notice once and keep to one limit. A claim is an attempt
with no error yet and a `not_before`: when its owner dies it runs out, and is claimed again.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import NamedTuple, get_args

from sqlalchemy import ColumnElement, and_, func, literal, or_, select, text, update
from sqlalchemy.orm import Session, aliased

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import moment
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Campaign, Notice, NoticeState

MAX_ATTEMPTS = 12  # over half a day
BACKOFF_SECONDS = 30.0
BACKOFF_CAP = 6 * 3600.0
CLAIM_SECONDS = 120.0  # more than any delivery takes
_WORTH_TELLING = ("regressed", "both")
_REPEATS = ("confirmed", "minimized")
_HOUR = timedelta(hours=1)
_ADVISORY_LOCK = 0x5C4ED_0071CE


class Claim(NamedTuple):
    """The right to deliver a notice within CLAIM_SECONDS; `attempt` counts from 1.

    `held_back` is how many others of the channel are due and wait because of its limit.
    """

    notice_id: int
    finding_id: int
    campaign_id: int
    channel: str
    attempt: int
    created_at: datetime
    held_back: int


def post_missing(store: Store, channels: Iterable[str]) -> int:
    """Store a waiting notice per channel for each finding that is worth telling; return how many.

    That is: `regressed` or `both`, repeated, not held, first seen by a campaign's hunt, and without
    a notice on that channel. Raises InfraError when the database fails.
    """
    return sum(_post_missing(store, channel) for channel in dict.fromkeys(channels))


def _post_missing(store: Store, channel: str) -> int:
    known = aliased(Notice)
    told = select(known.id).where(known.finding_id == Finding.id, known.channel == channel)
    untold = (
        select(Finding.id)
        .join(Hunt, Finding.hunt_id == Hunt.id)
        .where(
            Finding.verdict.in_(_WORTH_TELLING), Finding.status.in_(_REPEATS),
            Finding.held_at.is_(None), Hunt.campaign_id.is_not(None), ~told.exists(),
        )
        .order_by(Finding.id)
    )  # fmt: skip
    # Mostly there is nothing to write, and then nobody must wait for us.
    with store.read() as session:
        if session.scalar(untold.limit(1)) is None:
            return 0
    with store.write() as session:
        now = literal(moment(session), Notice.created_at.type)
        source = untold.add_columns(literal(channel), now, now)
        insert = rows.insert(session, Notice).from_select(
            ["finding_id", "channel", "not_before", "created_at"], source
        )
        insert = insert.on_conflict_do_nothing(index_elements=["finding_id", "channel"])
        return len(session.scalars(insert.returning(Notice.id)).all())


def due(store: Store, limit: int) -> list[Notice]:
    """Return the notices that could be delivered now but for a channel's limit, oldest first."""
    with store.read() as session:
        query = select(Notice).where(_due(moment(session))).order_by(Notice.id)
        return list(session.scalars(query.limit(limit)))


def claim(store: Store, channel: str, per_hour: int, now: datetime | None = None) -> Claim | None:
    """Claim the channel's oldest due notice; None if there is none, or the limit is reached.

    The limit is on what was sent in the past hour and what is claimed, by all processes. `now` is
    for tests (default: the database's clock). Raises InfraError when the database fails.
    """
    with store.write() as session:
        _take_turns(session)
        now = now or moment(session)
        due_here = and_(_due(now), Notice.channel == channel)
        _give_up_on_lost(session, due_here)
        room = per_hour - _count(session, Notice.channel == channel, _in_this_hour(now))
        if room <= 0:
            return None
        oldest = select(Notice).where(due_here).order_by(Notice.id).limit(1)
        notice = session.scalar(oldest.with_for_update(skip_locked=True))
        if notice is None:
            return None
        held_back = max(_count(session, due_here) - room, 0)
        notice.attempts += 1
        notice.error = None
        notice.not_before = now + timedelta(seconds=CLAIM_SECONDS)
        by_hunt = select(Campaign.id).join(Hunt).join(Finding, Finding.hunt_id == Hunt.id)
        campaign = session.scalars(by_hunt.where(Finding.id == notice.finding_id)).one()
        return Claim(
            notice.id, notice.finding_id, campaign, channel, notice.attempts, notice.created_at,
            held_back,
        )  # fmt: skip


def sent(store: Store, notice_id: int, now: datetime | None = None) -> None:
    """Store that the notice was delivered; of several such reports the first counts."""
    with store.write() as session:
        values = {"state": "sent", "sent_at": now or moment(session), "error": None}
        unsent = update(Notice).where(Notice.id == notice_id, Notice.state != "sent")
        session.execute(unsent.values(values))


def failed(store: Store, notice_id: int, error: str, now: datetime | None = None) -> None:
    """Store that a delivery came to nothing, unless another one has succeeded.

    The notice waits for its next attempt, twice as long each time up to BACKOFF_CAP seconds; after
    MAX_ATTEMPTS it is `failed`.
    """
    with store.write() as session:
        notice = session.get(Notice, notice_id, with_for_update=True)
        if notice is None or notice.state != "waiting":
            return
        notice.error = rows.clean(error)
        if notice.attempts >= MAX_ATTEMPTS:
            notice.state = "failed"
        # A notice that failed without a claim has had no attempt yet.
        doublings = max(notice.attempts - 1, 0)
        wait = min(BACKOFF_SECONDS * 2**doublings, BACKOFF_CAP)
        notice.not_before = (now or moment(session)) + timedelta(seconds=wait)


def counts(store: Store, channels: Collection[str] | None = None) -> dict[NoticeState, int]:
    """Return how many notices (of those channels) are in each state, zeros too."""
    query = select(Notice.state, func.count()).group_by(Notice.state)
    if channels is not None:
        query = query.where(Notice.channel.in_(channels))
    found: dict[NoticeState, int] = dict.fromkeys(get_args(NoticeState), 0)
    with store.read() as session:
        found.update((state, count) for state, count in session.execute(query))
    return found


def listed(store: Store, state: NoticeState | None = None) -> list[Notice]:
    """Return the notices (in that state), newest first."""
    query = select(Notice).order_by(Notice.id.desc())
    with store.read() as session:
        return list(session.scalars(query if state is None else query.filter_by(state=state)))


def retry(store: Store, ids: Collection[int] = ()) -> int:
    """Let these notices, or all that failed, be tried anew and at once; return how many may be.

    A claimed one is being delivered and a sent one was: both stay as they are. Raises InputError
    for an unknown id.
    """
    with store.write() as session:
        now = moment(session)
        known = set(session.scalars(select(Notice.id).where(Notice.id.in_(ids))))
        if lost := sorted(set(ids) - known):
            raise InputError(f"notice {lost[0]}: unknown; `schedfuzz notices list` lists them")
        resting = or_(Notice.error.is_not(None), Notice.attempts == 0)
        wanted = [Notice.state == "failed"]
        if ids:
            open_ones = or_(Notice.state == "failed", and_(Notice.state == "waiting", resting))
            wanted = [Notice.id.in_(ids), open_ones]
        anew = update(Notice).where(*wanted).values(state="waiting", attempts=0, not_before=now)
        again = session.execute(
            anew.returning(Notice.id), execution_options={"synchronize_session": False}
        )
        return len(again.all())


def _take_turns(session: Session) -> None:
    """Let nobody else claim until the end of the transaction."""
    # On SQLite a write transaction does so already.
    if session.connection().dialect.name != "sqlite":
        session.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))


def _due(now: datetime) -> ColumnElement[bool]:
    # A wait longer than any we give came from a clock that has jumped back since.
    longest = now + timedelta(seconds=BACKOFF_CAP)
    passed = or_(Notice.not_before <= now, Notice.not_before > longest)
    return and_(Notice.state == "waiting", passed)


def _in_this_hour(now: datetime) -> ColumnElement[bool]:
    # Moments to come count too: a clock that has jumped back must not open the gate.
    sent_lately = and_(Notice.sent_at > now - _HOUR, Notice.sent_at <= now + _HOUR)
    claimed = and_(
        Notice.state == "waiting", Notice.attempts > 0, Notice.error.is_(None),
        Notice.not_before > now, Notice.not_before <= now + timedelta(seconds=CLAIM_SECONDS),
    )  # fmt: skip
    return or_(sent_lately, claimed)


def _count(session: Session, *where: ColumnElement[bool]) -> int:
    return session.execute(select(func.count()).select_from(Notice).where(*where)).scalar_one()


def _give_up_on_lost(session: Session, due_here: ColumnElement[bool]) -> None:
    """Fail the notices whose last attempt ended with its process."""
    lost = update(Notice).where(due_here, Notice.attempts >= MAX_ATTEMPTS)
    error = func.coalesce(Notice.error, "the process that delivered it ended, at the last attempt")
    session.execute(
        lost.values(state="failed", error=error), execution_options={"synchronize_session": False}
    )
