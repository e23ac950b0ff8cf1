"""Campaigns and nodes: what is wanted, what was spent, and who can do it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from test_db import PAIR
from test_db_writers import in_processes

from schedfuzz.corpus.errors import InputError
from schedfuzz.db import campaigns, nodes, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.service_models import Campaign, NodeTarget

pytest_plugins = ["postgres"]
WANTED = {
    "before": PAIR[0], "after": PAIR[1], "runner": "simulated", "hunts": 2, "priority": 3,
    "budget_executions": 10**12, "budget_seconds": 1.5, "daily_cap": 4, "canary": False,
    "options": {"time_slice": 60},
}  # fmt: skip
STATES = ("active", "paused", "done", "removed")


def add(store: Store, name: str, **different: Any) -> Campaign:
    return campaigns.add(store, name=name, **(WANTED | different))


def test_a_campaign_is_stored_as_wanted(store: Store) -> None:
    added = add(store, "night", canary=True)
    for campaign in (added, campaigns.get(store, "night")):
        shown = {name: getattr(campaign, name) for name in WANTED}
        assert shown == WANTED | {"canary": True}
        assert (campaign.id, campaign.name, campaign.state) == (1, "night", "active")
        assert abs(campaign.created_at - datetime.now(UTC)) < timedelta(minutes=1)
    unbounded = add(store, "open", budget_executions=None, budget_seconds=None)
    assert (unbounded.budget_executions, unbounded.budget_seconds) == (None, None)


def test_a_taken_name_is_refused_until_its_campaign_is_removed(store: Store) -> None:
    gone = []
    for _ in range(2):
        gone.append(add(store, "night").id)
        with pytest.raises(InputError) as caught:
            add(store, "night")
        assert str(caught.value) == (
            "campaign 'night': the name is taken; choose another, or remove that one first "
            "(`schedfuzz campaign remove night`)"
        )
        campaigns.set_state(store, "night", "removed")
    last = add(store, "night", before="new")
    assert [(row.id, row.name, row.state) for row in campaigns.listed(store, True)] == [
        *((number, f"night~{number}", "removed") for number in gone), (last.id, "night", "active"),
    ]  # fmt: skip
    assert campaigns.get(store, "night").before == "new"
    assert campaigns.get(store, f"night~{gone[0]}").id == gone[0]


@pytest.mark.parametrize(
    "name", ["", "~1", "night~1", "two words", "a/b", "a\nb", "a\n", "\ud800", "-x", "x" * 101]
)
def test_a_malformed_name(store: Store, name: str) -> None:
    with pytest.raises(InputError, match="choose another name") as caught:
        add(store, name)
    assert "\n" not in str(caught.value)
    assert campaigns.listed(store, include_removed=True) == []


def add_same(index: int, url: str, folder: Path) -> None:
    store = open_store(url)
    try:
        (folder / str(index)).write_text(str(add(store, "night").id))
    except InputError as error:
        assert "taken" in str(error)
    store.close()


@pytest.mark.parametrize("removed", [False, True])
def test_of_eight_that_add_a_name_at_once_one_gets_it(
    url: str, tmp_path: Path, removed: bool
) -> None:
    store = open_store(url)
    if removed:
        add(store, "night")
        campaigns.set_state(store, "night", "removed")
    folder = tmp_path / "got"
    folder.mkdir()
    in_processes(add_same, url, folder)
    (got,) = [int(path.read_text()) for path in folder.iterdir()]
    assert [row.id for row in campaigns.listed(store)] == [got]
    store.close()


def test_campaigns_are_listed_by_priority(store: Store) -> None:
    for name, priority in (("a", 0), ("b", 7), ("c", 0), ("d", -1)):
        add(store, name, priority=priority)
    campaigns.set_state(store, "c", "removed")

    def names(**options: bool) -> str:
        return "".join(row.name for row in campaigns.listed(store, **options))

    assert names() == "bad" and names(include_removed=True) == "bacd"


def test_an_unknown_campaign(store: Store) -> None:
    add(store, "night")
    for name in ("Night", "", "nul \0 lone \ud800"):
        for call in (
            lambda name=name: campaigns.get(store, name),
            lambda name=name: campaigns.set_state(store, name, "paused"),
        ):
            with pytest.raises(InputError, match="not in .*`schedfuzz campaign list`"):
                call()


def test_which_state_may_follow_on_which(store: Store) -> None:
    allowed = {
        ("active", "paused"), ("paused", "active"), ("done", "active"), ("active", "done"),
        ("paused", "done"), ("active", "removed"), ("paused", "removed"), ("done", "removed"),
    }  # fmt: skip
    for old in STATES:
        for new in STATES:
            name = f"{old}-{new}"
            add(store, name)
            with store.write() as session:
                session.execute(update(Campaign).filter_by(name=name).values(state=old))
            if (old, new) in allowed:
                assert campaigns.set_state(store, name, new, "why").state == new
            else:
                with pytest.raises(InputError, match=f"^campaign '{name}' is {old}") as caught:
                    campaigns.set_state(store, name, new, "why")
                assert "\n" not in str(caught.value)
            after = campaigns.get(store, name)
            changed = (new, "why") if (old, new) in allowed else (old, None)
            assert (after.state, after.reason) == changed


def test_a_reason_goes_with_its_state(store: Store) -> None:
    add(store, "night")
    paused = campaigns.set_state(store, "night", "paused", "nul \0")
    assert paused.reason == campaigns.get(store, "night").reason == "nul \\x00"
    campaigns.set_state(store, "night", "active")
    assert campaigns.get(store, "night").reason is None


def test_what_a_campaign_spent_is_the_sum_over_its_hunts(store: Store) -> None:
    one, two = add(store, "one").id, add(store, "two").id
    assert campaigns.spent(store, one) == (0, 0.0)
    mine = [
        writes.start_hunt(store, *PAIR, seed, {}, campaign_id=one, node="n \0") for seed in (1, 2)
    ]
    writes.update_hunt(store, mine[0], 2**33, 1.5)
    writes.finish_hunt(store, mine[1], "done", 2**33, 0.25)
    other = writes.start_hunt(store, *PAIR, 3, {}, campaign_id=two)
    writes.update_hunt(store, other, 5, 5.0)
    writes.update_hunt(store, writes.start_hunt(store, *PAIR, 4, {}), 7, 7.0)
    assert campaigns.spent(store, one) == (2**34, 1.75)
    assert [type(part) for part in campaigns.spent(store, one)] == [int, float]
    assert campaigns.spent(store, two) == (5, 5.0)
    assert [row.id for row in campaigns.hunts_of(store, one)] == mine
    assert [row.id for row in campaigns.hunts_of(store, one, "running")] == mine[:1]
    assert [row.id for row in campaigns.hunts_of(store, one, "done")] == mine[1:]
    assert [row.node for row in campaigns.hunts_of(store, one)] == ["n \\x00"] * 2


def test_nodes_come_and_go(store: Store) -> None:
    for name in ("b", "a", "c"):
        nodes.seen(store, name, f"10.0.0.{name}", {"CPU": 2.0, "memory": 1e10})
    assert [row.id for row in nodes.listed(store)] == ["b", "a", "c"]
    assert nodes.gone(store, ["a", "unknown"]) == ["b", "c"]
    assert nodes.gone(store, ["a"]) == []
    nodes.seen(store, "c", "10.0.0.9", {"CPU": 4.0})
    first, _, back = nodes.listed(store)
    assert [first.alive, back.alive] == [False, True]
    assert (back.address, back.resources) == ("10.0.0.9", {"CPU": 4.0})
    assert back.first_seen_at < back.heartbeat_at
    assert abs(back.heartbeat_at - datetime.now(UTC)) < timedelta(minutes=1)
    assert nodes.gone(store, []) == ["a", "c"]


def target(store: Store) -> NodeTarget:
    with store.read() as session:
        return session.scalars(select(NodeTarget)).one()


def wait(store: Store) -> float:
    row = target(store)
    assert row.until is not None
    return (row.until - row.changed_at).total_seconds()


def test_an_unfit_node_is_left_out_ever_longer(store: Store) -> None:
    nodes.seen(store, "n", "10.0.0.1", {})
    nodes.target_state(store, "n", "0.28.0", "preparing")
    assert nodes.unfit_nodes(store, ["0.28.0"]) == set()
    for failures, seconds in enumerate([60, 120, 240, 480, 960, 1920, 3600, 3600], start=1):
        nodes.target_state(store, "n", "0.28.0", "unfit", "no space \0")
        assert (target(store).failures, wait(store)) == (failures, seconds)
        assert target(store).reason == "no space \\x00"
        assert nodes.unfit_nodes(store, ["0.29.0", "0.28.0"]) == {"n"}
        nodes.target_state(store, "n", "0.28.0", "preparing")
        assert nodes.unfit_nodes(store, ["0.28.0"]) == set()
    nodes.target_state(store, "n", "0.28.0", "ready")
    row = target(store)
    assert (row.state, row.reason, row.failures, row.until) == ("ready", None, 0, None)
    nodes.target_state(store, "n", "0.28.0", "unfit")
    assert wait(store) == 60


def test_a_node_is_unfit_for_some_releases_and_some_time(store: Store) -> None:
    for name, release in (("a", "0.28.0"), ("b", "0.29.0"), ("c", "0.30.0")):
        nodes.seen(store, name, "10.0.0.1", {})
        nodes.target_state(store, name, release, "unfit")
    assert nodes.unfit_nodes(store, ["0.28.0", "0.29.0"]) == {"a", "b"}
    assert nodes.unfit_nodes(store, ["0.31.0"]) == nodes.unfit_nodes(store, []) == set()
    now = datetime.now(UTC)
    beyond = timedelta(seconds=nodes.UNFIT_CAP + 30)  # from a clock that jumped back since
    for name, until in (("a", now - timedelta(seconds=1)), ("b", now + beyond)):
        with store.write() as session:
            session.execute(update(NodeTarget).filter_by(node_id=name).values(until=until))
    assert nodes.unfit_nodes(store, ["0.28.0", "0.29.0", "0.30.0"]) == {"c"}


def test_a_target_needs_its_node(store: Store) -> None:
    with pytest.raises(IntegrityError):
        nodes.target_state(store, "unknown", "0.28.0", "ready")
