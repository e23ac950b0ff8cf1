"""What is planned, handed out and followed up, with places that only remember."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fabricated import SMALL
from found import list_findings
from sqlalchemy import select, update
from test_db_campaigns import WANTED

from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import campaigns, decisions, jobs, nodes, queries, verifications, writes
from schedfuzz.db.connect import Store
from schedfuzz.db.models import Finding
from schedfuzz.db.service_models import Campaign, Job
from schedfuzz.service import planning
from schedfuzz.service.coordinator import Coordinator
from schedfuzz.service.tasks import Ended, Needs, NodeView, Task, needs

pytest_plugins = ["postgres"]
ONE = NodeView("a" * 8, "10.0.0.1", "cpu", {"CPU": 4.0, "triage": 1.0})
GPU = NodeView("b" * 8, "10.0.0.2", "gpu", {"CPU": 4.0, "GPU": 1.0, "triage": 1.0})


def let_time_pass(store: Store, seconds: float) -> None:
    """Move all that jobs know of moments into the past."""
    with store.write() as session:
        for job in session.scalars(select(Job)):
            for name in ("lease_until", "not_before", "ended_at"):
                moment = getattr(job, name)
                if moment is not None:
                    setattr(job, name, moment - timedelta(seconds=seconds))


class Remembering:
    """Places that start nothing."""

    def __init__(self, *alive: NodeView) -> None:
        self.alive = list(alive)
        self.out: dict[int, tuple[Task, Needs]] = {}
        self.over: list[Ended] = []

    @property
    def running(self) -> list[Task]:
        return [task for task, _ in self.out.values()]

    def nodes(self) -> list[NodeView]:
        return self.alive

    def submit(self, task: Task, wanted: Needs) -> None:
        self.out[task.job] = task, wanted

    def ended(self, seconds: float) -> Iterator[Ended]:
        for ended in self.over:
            del self.out[ended.task.job]
            yield ended
        self.over = []


def campaign(store: Store, name: str = "seed", **different: Any) -> Campaign:
    own = {"before": "0.28.0", "after": "0.29.0", "hunts": 1, "budget_seconds": None}
    return campaigns.add(store, name=name, **(WANTED | own | different))


def coordinator(store: Store, places: Remembering, name: str = "me") -> Coordinator:
    made = Coordinator(store, places, name, lambda spelling: spelling.replace("latest", "0.32.0"))
    made.lead()
    return made


def turn(made: Coordinator) -> None:
    made._due.clear()
    made.turn()


def found(store: Store, row: Campaign, name: str = "fixed", kind: str = "crash") -> int:
    hunt = writes.start_hunt(store, row.before, row.after, 1, {}, campaign_id=row.id, node="n")
    verdict = Verdict(name, kind, "rule", f"{name} {hunt}", "title")  # type: ignore[arg-type]
    finding, _ = writes.record_verdict(
        store, hunt, row.before, row.after, verdict, SMALL, 1, 1, 0.5, campaign_id=row.id
    )
    return finding


def posted(store: Store, kind: str) -> list[str]:
    return [job.subject for job in jobs.due(store, (kind,))]  # type: ignore[arg-type]


# -- planning ------------------------------------------------------------------------------------


def plan(store: Store) -> None:
    planning.plan(store, lambda spelling: spelling)


def test_a_campaign_hunts_in_as_many_places_as_it_wants(store: Store) -> None:
    row = campaign(store, hunts=3)
    plan(store)
    plan(store)
    assert posted(store, "hunt") == [f"{row.id}/{slot}" for slot in range(3)]


def test_a_hunt_that_is_done_goes_on_and_a_canarys_waits(store: Store) -> None:
    campaign(store), campaign(store, "canary", canary=True)
    plan(store)
    for job in jobs.due(store, ("hunt",)):
        lease = jobs.claim(store, job.id, "me", "n", 60)
        assert lease is not None and jobs.finish(store, lease, {})
    plan(store)
    assert len(posted(store, "hunt")) == 1
    let_time_pass(store, planning.CANARY_SECONDS)
    plan(store)
    assert len(posted(store, "hunt")) == 2


def test_a_spent_budget_ends_a_campaign(store: Store) -> None:
    row = campaign(store, budget_executions=100)
    hunt = writes.start_hunt(store, "a", "b", 1, {}, campaign_id=row.id)
    writes.update_hunt(store, hunt, 99, 1.0)
    plan(store)
    assert campaigns.get(store, "seed").state == "active"
    writes.update_hunt(store, hunt, 100, 1.0)
    plan(store)
    ended = campaigns.get(store, "seed")
    assert (ended.state, ended.reason) == ("done", "its budget is used up")
    assert posted(store, "hunt") == []


def test_news_is_minimized_first_and_divergences_last(store: Store) -> None:
    row = campaign(store)
    changed, both = found(store, row, "changed", "divergence"), found(store, row, "both")
    fixed = found(store, row, "fixed")
    plan(store)
    assert posted(store, "minimize") == [f"finding:{fixed}", f"finding:{both}"]
    for finding in (fixed, both):
        writes.record_confirmation(store, finding, 3, 3)
        writes.save_reproducer(store, finding, SMALL, 1, 5, "done")
    plan(store)
    assert f"finding:{changed}" in posted(store, "minimize")
    assert posted(store, "export") == [f"finding:{fixed}", f"finding:{both}"]
    assert posted(store, "verify") == ["0.28.0", "0.29.0"]


def test_a_minimization_that_was_given_up_holds_nobody_up(store: Store) -> None:
    row = campaign(store)
    changed, _ = found(store, row, "changed", "divergence"), found(store, row, "fixed")
    plan(store)
    with store.write() as session:
        session.execute(update(Job).where(Job.kind == "minimize").values(state="failed"))
    plan(store)
    assert posted(store, "minimize") == [f"finding:{changed}"]


def test_a_hunt_whose_lease_is_gone_ends(store: Store) -> None:
    row = campaign(store, hunts=2)
    plan(store)
    hunts = []
    for job in jobs.due(store, ("hunt",)):
        lease = jobs.claim(store, job.id, "me", "n", 60)
        assert lease is not None
        options = {"time": 1} | campaigns.leased(lease)
        hunts.append(writes.start_hunt(store, "a", "b", 1, options, campaign_id=row.id))
    alone = writes.start_hunt(store, "a", "b", 1, {})
    assert campaigns.close_abandoned(store) == 0
    jobs.give_back(store, lease)
    again = jobs.claim(store, lease.job_id, "me", "n", 60)
    assert again is not None and again.token != lease.token
    assert campaigns.close_abandoned(store) == 1
    shown = {hunt.id: (hunt.state, hunt.ended_at is None) for hunt in queries.list_hunts(store)}
    assert shown == {
        hunts[0]: ("running", True), hunts[1]: ("interrupted", False), alone: ("running", True),
    }  # fmt: skip


def test_a_finding_of_no_campaign_or_held_back_is_left_alone(store: Store) -> None:
    row = campaign(store)
    held = found(store, row)
    with store.write() as session:
        session.execute(update(Finding).where(Finding.id == held).values(held_at=row.created_at))
    hunt = writes.start_hunt(store, "a", "b", 1, {})
    verdict = Verdict("fixed", "crash", "rule", "alone", "title")
    writes.record_verdict(store, hunt, "a", "b", verdict, SMALL, 1, 1, 0.5)
    plan(store)
    assert posted(store, "minimize") == []


def test_a_target_is_verified_again_when_there_is_more(store: Store) -> None:
    row = campaign(store)
    for number in range(2):
        finding = found(store, row, "fixed", f"crash{number}"[:5])
        writes.record_confirmation(store, finding, 3, 3)
        plan(store)
        assert posted(store, "verify") == ["0.28.0", "0.29.0"]
        for job in jobs.due(store, ("verify",)):
            lease = jobs.claim(store, job.id, "me", "n", 60)
            assert lease is not None
            verifications.save(store, finding, job.subject, "breaks", 3, 3)
            jobs.finish(store, lease, {})
        plan(store)
        assert posted(store, "verify") == []


# -- coordinating --------------------------------------------------------------------------------


def test_what_is_due_is_handed_out_once_as_far_as_there_is_room(store: Store) -> None:
    campaign(store, hunts=5)
    places = Remembering(ONE)
    made = coordinator(store, places)
    turn(made)
    turn(made)
    assert [task.kind for task in places.running] == ["hunt", "hunt"]
    assert [task.targets for task in places.running] == [("0.28.0", "0.29.0")] * 2
    assert [(row.address, row.alive) for row in nodes.listed(store)] == [("10.0.0.1", True)]


def test_a_higher_priority_goes_first(store: Store) -> None:
    campaign(store, "low", priority=1, hunts=2), campaign(store, "high", priority=2, hunts=2)
    places = Remembering(ONE)
    turn(coordinator(store, places))
    subjects = {job.id: job.subject for job in jobs.due(store, ("hunt",))}
    assert {subjects[task.job].split("/")[0] for task in places.running} == {"2"}


def test_news_that_comes_later_is_worked_on_first(store: Store) -> None:
    row = campaign(store)
    places = Remembering(ONE)
    made = coordinator(store, places)
    both = [found(store, row, "both") for _ in range(3)]
    turn(made)
    fixed = found(store, row, "fixed")
    places.out = {}
    turn(made)
    minimized = [task.finding for task in places.running if task.kind == "minimize"]
    assert minimized == [fixed, both[0]]


def test_latest_is_a_release(store: Store) -> None:
    campaign(store, before="0.31.0", after="latest")
    places = Remembering(ONE)
    turn(coordinator(store, places))
    assert [task.targets for task in places.running] == [("0.31.0", "0.32.0")]


def test_a_dead_process_frees_its_job_at_once_and_counts(store: Store) -> None:
    campaign(store)
    places = Remembering(ONE)
    made = coordinator(store, places)
    turn(made)
    [task] = places.running
    assert jobs.claim(store, task.job, "me", "n", 60) is not None
    places.over = [Ended(task, "died: ActorDiedError")]
    turn(made)
    with store.read() as session:
        job = session.get(Job, task.job)
    assert job is not None and (job.state, job.attempts) == ("waiting", 1)
    assert job.error == "its process died: ActorDiedError"


def test_an_unfit_node_is_left_out_and_nobody_else_is_bothered(store: Store) -> None:
    campaign(store)
    nodes.seen(store, ONE.id, ONE.address, {})
    nodes.target_state(store, ONE.id, "0.29.0", "unfit", "no disk")
    places = Remembering(ONE)
    turn(coordinator(store, places))
    assert places.running == []
    other = ONE._replace(id="c" * 8)
    places.alive.append(other)
    turn(coordinator(store, places))
    [(_, wanted)] = places.out.values()
    assert wanted.left_out == (ONE.id,)


def test_one_coordinator_leads_and_the_next_frees_what_it_held(store: Store) -> None:
    campaign(store)
    places = Remembering(ONE)
    first = coordinator(store, places, "first")
    turn(first)
    [task] = places.running
    lease = jobs.claim(store, task.job, "first", "n", 600)
    assert lease is not None
    second = Coordinator(store, Remembering(ONE), "second", str)
    assert not second.lead()
    let_time_pass(store, 31)  # the first one is dead
    assert second.lead() and not first.lead()
    assert not jobs.finish(store, lease, {})  # whoever worked for the first is too late
    assert posted(store, "hunt") == ["1/0"]


def test_a_campaign_that_is_paused_hands_out_nothing(store: Store) -> None:
    campaign(store)
    places = Remembering(ONE)
    made = coordinator(store, places)
    campaigns.set_state(store, "seed", "paused")
    turn(made)
    assert places.running == []
    campaigns.set_state(store, "seed", "active")
    turn(made)
    assert len(places.running) == 1


@pytest.mark.parametrize(
    "kind, targets, kinds, wanted",
    [
        ("hunt", ("0.28.0", "0.29.0"), {"cpu"}, Needs(cpus=2, kind="cpu")),
        ("hunt", ("0.28.0", "0.29.0"), {"cpu", "gpu"}, Needs(cpus=2, kind="cpu")),
        ("hunt", ("0.28.0", "0.29.0"), {"gpu"}, Needs(cpus=2)),
        ("hunt", ("0.28.0:real", "0.29.0:real"), {"cpu", "gpu"}, Needs(cpus=0, gpus=1, kind="gpu")),
        ("hunt", ("0.28.0:real", "0.29.0:real"), {"cpu"}, Needs(cpus=2, kind="cpu")),
        ("minimize", ("0.28.0", "0.29.0"), {"cpu"}, Needs(cpus=0, triage=1, kind="cpu")),
    ],
)
def test_the_real_runner_goes_where_gpus_are(
    kind: str, targets: tuple[str, str], kinds: set[str], wanted: Needs
) -> None:
    task = Task(job=1, kind=kind, owner="me", targets=targets)
    assert needs(task, kinds, set()) == wanted


def test_every_finding_is_found_by_its_campaign(store: Store) -> None:
    found(store, campaign(store))
    [row] = list_findings(store)
    assert row.held_at is None


def test_what_is_muted_too_long_wakes(store: Store) -> None:
    number = found(store, campaign(store))
    decisions.mute(store, number, datetime.now(UTC) + timedelta(days=1), "ann")
    made = coordinator(store, Remembering(ONE))
    turn(made)
    assert queries.get_finding(store, number).status == "muted"
    with store.write() as session:
        session.execute(update(Finding).values(muted_until=datetime.now(UTC)))
    turn(made)
    assert queries.get_finding(store, number).status == "new"
