"""Nouns: worker, unfit.

What a place of the cluster does with a job, in whatever process it is called: claim it, make the
environments ready, work, and end the job. It knows nothing of Ray, so all of it runs in a test.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from schedfuzz.corpus.errors import InfraError, InputError
from schedfuzz.db import campaigns, jobs, nodes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.jobs import Lease
from schedfuzz.service import triage
from schedfuzz.service.hunter import Hunter
from schedfuzz.service.keeping import LEASE_SECONDS, Kept, kept, patiently
from schedfuzz.service.tasks import Task
from schedfuzz.workers.build import ensure
from schedfuzz.workers.home import Home
from schedfuzz.workers.targets import parse_target

Work = Callable[[Store, Home, Kept], dict[str, Any]]


class Unfit(Exception):
    """This node cannot make an environment ready: another one may."""


def run(task: Task, node: str) -> str:
    """Do a job on this node; return how it ended: done, failed, stopped, lost, unfit or gone."""
    store = open_store(os.environ.get("SCHEDFUZZ_DB") or Home.locate().database_url)
    try:
        lease = jobs.claim(store, task.job, task.owner, node, LEASE_SECONDS)
        if lease is None:
            return "gone"
        with kept(store, lease) as keeper:
            return _end(store, keeper, partial(_work, task, node))
    finally:
        store.close()


def _end(store: Store, keeper: Kept, work: Work) -> str:
    """Work on a kept job and store how it ended."""
    lease = keeper.lease
    try:
        result = work(store, Home.locate(), keeper)
    except triage.Stopped:
        return _stored(lambda: jobs.give_back(store, lease), "stopped", keeper)
    except Unfit:
        return _stored(lambda: jobs.give_back(store, lease), "unfit", keeper)
    except (InfraError, InputError) as error:
        why = str(error)
        return _stored(lambda: jobs.fail(store, lease, why), "failed", keeper)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        _stored(lambda: jobs.fail(store, lease, why), "failed", keeper)
        raise
    return _stored(lambda: jobs.finish(store, lease, result), "done", keeper)


def _stored(act: Callable[[], bool], word: str, keeper: Kept) -> str:
    """End the job, and say `lost` if that was not ours to do any more."""
    answers: list[bool] = []
    patiently(lambda: answers.append(act()))
    return word if answers[-1] else "lost"


def _work(task: Task, node: str, store: Store, home: Home, keeper: Kept) -> dict[str, Any]:
    releases = [parse_target(target).release for target in task.targets]
    prepare(store, home, node, releases)
    lease = keeper.lease
    if task.kind == "hunt":
        campaign = campaigns.by_id(store, _campaign(lease))
        return Hunter(store, home, campaign, task.targets, lease, node).hunt(keeper)

    def stopping() -> bool:
        return keeper.lost

    if task.kind == "distill":
        before, after = task.targets
        return triage.distill_corpus(store, home, before, after, stopping)
    if task.kind == "verify":
        return triage.verify(store, home, task.targets[0], stopping)
    assert task.finding is not None
    work = {"minimize": triage.minimize, "export": triage.export}[task.kind]
    return work(store, home, task.finding, stopping)


def _campaign(lease: Lease) -> int:
    assert lease.campaign_id is not None
    return lease.campaign_id


def prepare(store: Store, home: Home, node: str, releases: Sequence[str]) -> None:
    """Make this node's environments ready, and store how that went.

    Raises Unfit when one of them cannot be made here.
    """
    for release in dict.fromkeys(releases):
        nodes.target_state(store, node, release, "preparing")
        try:
            ensure(release, home, lambda line: None)
        except (InfraError, InputError) as error:
            nodes.target_state(store, node, release, "unfit", str(error))
            raise Unfit(str(error)) from error
        nodes.target_state(store, node, release, "ready")
