"""Nouns: planning.

Which jobs there ought to be. All of it follows from the database and can be worked out again at any
time by anybody: posting a job that is there does nothing.
"""

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import ColumnElement, Row, Select, String, and_, cast, func, literal, select

from schedfuzz.db import campaigns, jobs, verifications
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding, Hunt
from schedfuzz.db.service_models import Campaign, CorpusEntry, Job, JobKind
from schedfuzz.service.tasks import Task

CANARY_SECONDS = 3600.0  # between two tries of a canary
CANARY_SLICE = 120.0
DISTILL_SECONDS = 6 * 3600.0
DISTILL_FROM = 300  # scenarios
RETRY_SECONDS = 600.0  # for a hunt that failed too often in a row

NEWS = ("regressed", "fixed", "both", "changed")  # what is worked on first

# A spelling of a campaign -> that of a target: `latest` is some release today.
Resolve = Callable[[str], str]


def plan(store: Store, resolve: Resolve) -> None:
    """Post what is missing: hunts, triage of findings, distillations."""
    for campaign in campaigns.listed(store):
        if campaign.state == "active" and not _spent(store, campaign):
            _plan_hunts(store, campaign)
    _plan_triage(store)
    targets = {
        resolve(name)
        for campaign in campaigns.listed(store)
        if campaign.state == "active"
        for name in (campaign.before, campaign.after)
    }
    for target in sorted({target for _, target in verifications.missing(store, sorted(targets))}):
        if not jobs.post(store, "verify", target):
            _reopen_after(store, target, {"done": 0.0, "failed": RETRY_SECONDS}, "verify")
    _plan_distillations(store)


def news_first(store: Store, due: list[Job]) -> list[Job]:
    """Return the jobs with those of a pair's news first, and as they were within a verdict."""
    numbers = [job.finding_id for job in due if job.finding_id is not None]
    verdicts = select(Finding.id, Finding.verdict).where(Finding.id.in_(numbers))
    with store.read() as session:
        of: dict[int | None, str] = {row.id: row.verdict for row in session.execute(verdicts)}
    return sorted(due, key=lambda job: NEWS.index(of.get(job.finding_id, NEWS[0])))


def task_of(store: Store, job: Job, owner: str, resolve: Resolve) -> Task | None:
    """Return the job as a task, None for one whose campaign or finding is gone."""
    if job.kind == "hunt":
        assert job.campaign_id is not None
        campaign = campaigns.by_id(store, job.campaign_id)
        pair = resolve(campaign.before), resolve(campaign.after)
        return Task(job=job.id, kind=job.kind, owner=owner, targets=pair)
    if job.kind == "verify":
        return Task(job=job.id, kind=job.kind, owner=owner, targets=(job.subject,))
    if job.kind == "distill":
        before, _, after = job.subject.partition("..")
        return Task(job=job.id, kind=job.kind, owner=owner, targets=(before, after))
    assert job.finding_id is not None
    with store.read() as session:
        row = session.get(Finding, job.finding_id)
    if row is None:
        return None
    pair = spelled(row.before), spelled(row.after)
    return Task(job=job.id, kind=job.kind, owner=owner, targets=pair, finding=row.id)


def spelled(name: str) -> str:
    """Return how a stored target name is spelled: a scheduler class carries a digest there."""
    return name.rpartition("@")[0] if name.count("@") == 2 else name


def _spent(store: Store, campaign: Campaign) -> bool:
    """End a campaign whose budget is used up; return whether that is so."""
    executions, seconds = campaigns.spent(store, campaign.id)
    full = campaign.budget_executions is not None and executions >= campaign.budget_executions
    late = campaign.budget_seconds is not None and seconds >= campaign.budget_seconds
    if full or late:
        campaigns.set_state(store, campaign.name, "done", "its budget is used up")
    return full or late


def _plan_hunts(store: Store, campaign: Campaign) -> None:
    for slot in range(campaign.hunts):
        subject = f"{campaign.id}/{slot}"
        if jobs.post(store, "hunt", subject, campaign_id=campaign.id):
            continue
        wait = CANARY_SECONDS if campaign.canary else 0.0
        _reopen_after(store, subject, {"done": wait, "failed": RETRY_SECONDS})


def _reopen_after(
    store: Store, subject: str, waits: dict[str, float], kind: JobKind = "hunt"
) -> None:
    """Let a job that ended so long ago begin anew; `waits` is by how it ended."""
    with store.read() as session:
        job = session.scalar(select(Job).filter_by(kind=kind, subject=subject))
        now = jobs.moment(session)
    if job is None or job.state not in waits or job.ended_at is None:
        return
    if now - job.ended_at >= timedelta(seconds=waits[job.state]):
        jobs.reopen(store, job.kind, subject)


def _plan_triage(store: Store) -> None:
    """Post what findings of campaigns need next: to be minimized, then to be exported.

    A divergence is worth less effort, for two releases differ on purpose: it waits until no
    violation is left to minimize that has not been given up.
    """
    open_, violation = Finding.minimize_state != "done", Finding.verdict != "changed"
    kept = and_(Finding.minimize_state == "done", Finding.status == "minimized", violation)
    with store.read() as session:
        unminimized = session.execute(_without("minimize", open_)).all()
        unexported = session.execute(_without("export", kept)).all()
        given_up = _job("minimize").where(Job.state == "failed").exists()
        busy = session.scalar(_of_campaigns().where(open_, violation, ~given_up).limit(1))
    for number, verdict in sorted(unminimized, key=_urgency):
        if verdict != "changed" or busy is None:
            jobs.post(store, "minimize", f"finding:{number}", finding_id=number)
    for number, _ in sorted(unexported, key=_urgency):
        jobs.post(store, "export", f"finding:{number}", finding_id=number)


def _urgency(row: Row[int, str]) -> tuple[int, int]:
    return NEWS.index(row[1]), row[0]


def _of_campaigns() -> Select[int, str]:
    """Return the query of the findings of campaigns that are not held: id, verdict."""
    query = select(Finding.id, Finding.verdict).join(Hunt, Hunt.id == Finding.hunt_id)
    return query.where(Hunt.campaign_id.is_not(None), Finding.held_at.is_(None))


def _without(kind: JobKind, wanted: ColumnElement[bool]) -> Select[int, str]:
    """Return the query of those among them that are `wanted` and have no job of a kind yet."""
    return _of_campaigns().where(wanted, ~_job(kind).exists())


def _job(kind: JobKind) -> Select[int]:
    # By its key, which has an index.
    subject = literal("finding:") + cast(Finding.id, String)
    return select(Job.id).where(Job.kind == kind, Job.subject == subject)


def _plan_distillations(store: Store) -> None:
    kept = func.count().filter(CorpusEntry.kept)
    sizes = select(CorpusEntry.before, CorpusEntry.after, kept).group_by(
        CorpusEntry.before, CorpusEntry.after
    )
    with store.read() as session:
        pairs = session.execute(sizes).all()
    for before, after, count in pairs:
        subject = f"{spelled(before)}..{spelled(after)}"
        if count >= DISTILL_FROM and not jobs.post(store, "distill", subject):
            _reopen_after(store, subject, {"done": DISTILL_SECONDS}, "distill")
