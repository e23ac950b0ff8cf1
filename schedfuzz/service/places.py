"""Nouns: place, node, Ray.

Where tasks run: Ray's nodes. Placing, queueing, and noticing that a process or a whole node is gone
are Ray's; this is only how we say what we want. Retries are not Ray's: a job's lease and attempts
are in the database, where they outlive the cluster.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError

from schedfuzz.service import worker
from schedfuzz.service.tasks import Ended, Needs, NodeView, Task

KIND_LABEL = "schedfuzz.kind"
ID_LABEL = "ray.io/node-id"
MAX_CALLS = 20  # of one worker process: whatever it leaks goes with it


class HuntActor:
    """Owns one hunt: its process, and through it a pair of target processes."""

    def hunt(self, task: bytes) -> str:
        """Run a hunt's job on this node."""
        return _run(task)


def triage_task(task: bytes) -> str:
    """Run a job of triage on this node."""
    return _run(task)


def _run(task: bytes) -> str:
    node = ray.get_runtime_context().get_node_id()
    return worker.run(msgspec.json.decode(task, type=Task), node)


class RayPlaces:
    """The cluster that this process is connected to."""

    def __init__(self) -> None:
        self._running: dict[Any, tuple[Task, Any]] = {}

    def nodes(self) -> list[NodeView]:
        """Return the nodes that are alive."""
        return [
            NodeView(
                node["NodeID"], node["NodeManagerAddress"],
                node.get("Labels", {}).get(KIND_LABEL, ""), node["Resources"],
            )
            for node in ray.nodes()
            if node["Alive"]
        ]  # fmt: skip

    @property
    def running(self) -> list[Task]:
        """Return the tasks that were handed out and are not over."""
        return [task for task, _ in self._running.values()]

    def submit(self, task: Task, needs: Needs) -> None:
        """Hand out a task; Ray finds it a place, or keeps it until there is one."""
        data = msgspec.json.encode(task)
        options = _options(needs)
        if task.kind == "hunt":
            actor = ray.remote(max_restarts=0, max_task_retries=0, **options)(HuntActor).remote()
            self._running[actor.hunt.remote(data)] = task, actor
        else:
            triage = ray.remote(max_retries=0, max_calls=MAX_CALLS, **options)(triage_task)
            self._running[triage.remote(data)] = task, None

    def ended(self, seconds: float) -> Iterator[Ended]:
        """Yield what is over, after waiting for that at most so long."""
        if not self._running:
            time.sleep(seconds)
            return
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        more, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for ref in dict.fromkeys([*done, *more]):
            task, actor = self._running.pop(ref)
            try:
                word = str(ray.get(ref))
            except RayError as error:
                word = f"died: {type(error).__name__}"
            if actor is not None:
                with contextlib.suppress(RayError):
                    ray.kill(actor)
            yield Ended(task, word)


def _options(needs: Needs) -> dict[str, Any]:
    selector = {KIND_LABEL: needs.kind} if needs.kind else {}
    if needs.left_out:
        selector[ID_LABEL] = f"!in({','.join(needs.left_out)})"
    return {
        "num_cpus": needs.cpus, "num_gpus": needs.gpus,
        "resources": {"triage": needs.triage} if needs.triage else {},
        "label_selector": selector,
    }  # fmt: skip
