"""Nouns: task, needs, node.

A job as it is handed to a place of the cluster, and what that place must have.
"""

from typing import NamedTuple

import msgspec


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A job for a place: `targets` are spelled as on the command line.

    `owner` is the coordinator that hands it out.
    """

    job: int
    kind: str
    owner: str
    targets: tuple[str, ...]
    finding: int | None = None

    @property
    def real(self) -> bool:
        """Whether the real runner plays."""
        return any(":real" in target for target in self.targets)


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a place must have; `left_out` are the ids of nodes that will not do."""

    cpus: float
    gpus: float = 0
    triage: float = 0
    kind: str = ""
    left_out: tuple[str, ...] = ()


class NodeView(NamedTuple):
    """A node that is alive: `kind` is `cpu` or `gpu`, `resources` as Ray counts them."""

    id: str
    address: str
    kind: str
    resources: dict[str, float]


class Ended(NamedTuple):
    """A task that is over: `word` as `worker.run` says it, `died` when its process or node did."""

    task: Task
    word: str


def needs(task: Task, kinds: set[str], left_out: set[str]) -> Needs:
    """Return what a task needs in a cluster with nodes of these kinds (`cpu`, `gpu`).

    The real runner goes where GPUs are, if anywhere; the simulated one where they are not. Triage
    does not wait for the hunts: each node has a place for it beside them.
    """
    gpu = task.real and "gpu" in kinds
    kind = "gpu" if gpu else "cpu" if "cpu" in kinds else ""
    hunts = task.kind == "hunt"
    return Needs(
        cpus=2.0 if hunts and not gpu else 0.0, gpus=1.0 if gpu else 0.0,
        triage=0.0 if hunts else 1.0, kind=kind, left_out=tuple(sorted(left_out)),
    )  # fmt: skip
