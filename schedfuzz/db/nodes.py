"""Nouns: node, heartbeat, a target's state on a node, unfit.

A node that cannot prepare a release is left out for that release only, and not for good: what was
wrong with it (a full disk, an index out of reach) often passes, so it is tried again, ever later.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from schedfuzz.db import rows
from schedfuzz.db.connect import Store
from schedfuzz.db.jobs import moment
from schedfuzz.db.service_models import Node, NodeTarget, TargetState

UNFIT_SECONDS = 60.0
UNFIT_CAP = 3600.0


def seen(store: Store, node_id: str, address: str, resources: dict[str, Any]) -> None:
    """Store that the node is alive now, with its address and its resources as Ray counts them."""
    with store.write() as session:
        now = moment(session)
        present = {
            "address": rows.clean(address), "resources": resources, "alive": True,
            "heartbeat_at": now,
        }  # fmt: skip
        upsert = rows.insert(session, Node).values(id=node_id, first_seen_at=now, **present)
        session.execute(upsert.on_conflict_do_update(index_elements=["id"], set_=present))


def gone(store: Store, alive_ids: Collection[str]) -> list[str]:
    """Mark all other nodes as dead; return the ids of those that were alive until now, sorted."""
    dead = update(Node).where(Node.alive, Node.id.not_in(alive_ids)).values(alive=False)
    with store.write() as session:
        return sorted(session.scalars(dead.returning(Node.id)))


def listed(store: Store) -> list[Node]:
    """Return all nodes, dead ones too, in the order in which they were first seen."""
    with store.read() as session:
        return list(session.scalars(select(Node).order_by(Node.first_seen_at, Node.id)))


def target_state(
    store: Store, node_id: str, release: str, state: TargetState, reason: str | None = None
) -> None:
    """Store how far a known node is with a release's environment.

    Each `unfit` leaves the node out twice as long as the one before; `ready` forgets them all.
    """
    key = {"node_id": node_id, "release": rows.clean(release)}
    with store.write() as session:
        now = moment(session)
        first = rows.insert(session, NodeTarget).values(**key, state=state, changed_at=now)
        session.execute(first.on_conflict_do_nothing())
        target = session.scalars(select(NodeTarget).filter_by(**key).with_for_update()).one()
        target.state, target.until, target.changed_at = state, None, now
        target.reason = None if reason is None else rows.clean(reason)
        if state == "ready":
            target.failures = 0
        elif state == "unfit":
            # The exponent is bounded: a float power that is too high overflows.
            wait = min(UNFIT_SECONDS * 2 ** min(target.failures, 30), UNFIT_CAP)
            target.failures += 1
            target.until = now + timedelta(seconds=wait)


def unfit_nodes(store: Store, releases: Collection[str]) -> set[str]:
    """Return the ids of the nodes to leave out now for a job that needs all these releases."""
    return {row.node_id for row in unfit(store) if row.release in releases}


def unfit(store: Store) -> list[NodeTarget]:
    """Return what is left out now, and on which node, newest last."""
    with store.read() as session:
        now = moment(session)
        # A wait longer than any we give came from a clock that has jumped back since.
        waiting = NodeTarget.until.between(now, now + timedelta(seconds=UNFIT_CAP))
        query = select(NodeTarget).where(NodeTarget.state == "unfit", waiting)
        return list(session.scalars(query.order_by(NodeTarget.changed_at)))
