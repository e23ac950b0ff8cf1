"""Nouns: coordinator, turn.

Sees to it that what the database says ought to be done is being done somewhere. It remembers
nothing that matters: killed at any moment and started again it frees what its predecessor had
handed out and goes on. One job, leased like any other, makes sure that there is only one of it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from schedfuzz.corpus.errors import InfraError
from schedfuzz.db import campaigns as stored_campaigns
from schedfuzz.db import held, jobs, muting, nodes
from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import Lease
from schedfuzz.db.service_models import JobKind
from schedfuzz.service.logs import get
from schedfuzz.service.planning import Resolve, news_first, plan, task_of
from schedfuzz.service.tasks import Ended, Needs, NodeView, Task, needs
from schedfuzz.workers.targets import parse_target

# The first go first: what a minimized finding still lacks before more findings are minimized.
KINDS: tuple[JobKind, ...] = ("verify", "export", "minimize", "distill", "hunt")
PLAN_SECONDS = 2.0
RELEASE_SECONDS = 300.0
CLOSE_SECONDS = 60.0
LEADER_SECONDS = 30.0
RENEW_SECONDS = 5.0
TURN_SECONDS = 1.0
SUBJECT = "cluster"


class Places(Protocol):
    """Where tasks run (`places.RayPlaces`)."""

    @property
    def running(self) -> list[Task]:
        """Return the tasks that were handed out and are not over."""

    def nodes(self) -> list[NodeView]:
        """Return the nodes that are alive."""

    def submit(self, task: Task, needs: Needs) -> None:
        """Hand out a task."""

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield what is over, after waiting for that at most so long."""


class Coordinator:
    """Plans, hands out and follows up; `name` tells it from its predecessors."""

    def __init__(self, store: Store, places: Places, name: str, resolve: Resolve) -> None:
        self.store = store
        self.places = places
        self.name = name
        self.resolve = resolve
        self.log = get().bind(coordinator=name)
        self._lead: Lease | None = None
        self._due: dict[str, float] = {}
        self._kinds: set[str] = set()

    def lead(self) -> bool:
        """Become the one coordinator, or stay it; return whether that is so."""
        if self._lead is not None and jobs.renew(self.store, self._lead, LEADER_SECONDS):
            return True
        self._lead = None
        jobs.post(self.store, "coordinate", SUBJECT)
        jobs.reopen(self.store, "coordinate", SUBJECT)
        for job in jobs.due(self.store, ("coordinate",), 1):
            self._lead = jobs.claim(self.store, job.id, self.name, "", LEADER_SECONDS)
        if self._lead is not None:
            freed = jobs.give_back_others(self.store, self.name)
            self.log.info("leading", freed=freed)
        return self._lead is not None

    def run(self, stopping: Callable[[], bool]) -> None:
        """Take turns until `stopping` says so, then let somebody else lead."""
        while not stopping():
            try:
                renewed = self._lead is not None and not self._now_and_then("lead", RENEW_SECONDS)
                if renewed or self.lead():
                    self.turn()
                else:
                    time.sleep(1.0)
            except InfraError as error:
                # The database is away: nothing is lost, and nothing can be done.
                self.log.warning("database away", error=str(error))
                time.sleep(2.0)
        self._leave()

    def turn(self) -> None:
        """Follow up what ended, see the nodes, plan, and hand out what there is room for."""
        for ended in self.places.ended(TURN_SECONDS):
            self._follow_up(ended)
        if self._now_and_then("plan", PLAN_SECONDS):
            alive = self._see_nodes()
            plan(self.store, self.resolve)
            self._hand_out(alive)
        if self._now_and_then("release", RELEASE_SECONDS):
            for campaign in stored_campaigns.listed(self.store):
                held.release(self.store, campaign.id)
            muting.wake(self.store)
        if self._now_and_then("close", CLOSE_SECONDS):
            stored_campaigns.close_abandoned(self.store)

    def _leave(self) -> None:
        if self._lead is not None:
            try:
                jobs.give_back(self.store, self._lead)
            except InfraError as error:
                self.log.warning("database away", error=str(error))

    def _now_and_then(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _see_nodes(self) -> list[NodeView]:
        alive = self.places.nodes()
        for node in alive:
            nodes.seen(self.store, node.id, node.address, node.resources | {"kind": node.kind})
        for lost in nodes.gone(self.store, [node.id for node in alive]):
            self.log.warning("node lost", node=lost)
        self._kinds = {node.kind for node in alive if hunts_on(node)}
        return alive

    def _follow_up(self, ended: Ended) -> None:
        """Free at once what a dead process or node held; the rest ended its job itself."""
        task, word = ended.task, ended.word
        self.log.info("ended", job=task.job, kind=task.kind, how=word)
        if word.startswith("died"):
            jobs.abandon(self.store, task.job, self.name, f"its process {word}")

    # -- handing out -----------------------------------------------------------------------------

    def _hand_out(self, alive: list[NodeView]) -> None:
        out = self.places.running
        taken = {task.job for task in out}
        room = self._room(alive, out)
        for kind in KINDS:
            for job in news_first(self.store, jobs.due(self.store, (kind,))):
                place = "hunt" if kind == "hunt" else "triage"
                if job.id in taken or room[place] <= 0:
                    continue
                task = task_of(self.store, job, self.name, self.resolve)
                if task is not None and self._submit(task, alive):
                    room[place] -= 1

    def _submit(self, task: Task, alive: list[NodeView]) -> bool:
        releases = [parse_target(target).release for target in task.targets]
        unfit = nodes.unfit_nodes(self.store, releases)
        able = [node for node in alive if hunts_on(node)]
        if all(node.id in unfit for node in able):
            return False  # nobody can: the nodes' table says why, and until when
        self.places.submit(task, needs(task, self._kinds, unfit))
        self.log.info("handed out", job=task.job, kind=task.kind, targets=task.targets)
        return True

    def _room(self, alive: list[NodeView], out: list[Task]) -> dict[str, int]:
        """Return how many more may be handed out: what the nodes hold, and one that waits."""
        hunts = sum(map(hunts_on, alive))
        triage = sum(int(node.resources.get("triage", 0)) for node in alive)
        hunting = sum(task.kind == "hunt" for task in out)
        return {"hunt": hunts - hunting, "triage": triage + 1 - (len(out) - hunting)}


def hunts_on(node: NodeView) -> int:
    """Return how many hunts a node has room for; one without any offers nothing but itself."""
    return int(node.resources.get("GPU", 0)) + int(node.resources.get("CPU", 0) // 2)
