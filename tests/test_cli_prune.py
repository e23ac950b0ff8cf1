"""The prune verb: what it prints, and that a dry run deletes nothing."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import update
from test_db import hunt, scenario

from schedfuzz.cli.main import cli
from schedfuzz.db import queries, writes
from schedfuzz.db.connect import Store, open_store
from schedfuzz.db.models import Incident
from schedfuzz.db.retention import policy

PAGE = Path(__file__).parents[1] / "docs" / "retention.md"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with two old incidents and a new one, each with its scenario."""
    url = f"sqlite:///{tmp_path / 'prune.db'}"
    monkeypatch.setenv("SCHEDFUZZ_DB", url)
    store = open_store(url)
    one = hunt(store)
    for number in (1, 2, 3):
        writes.record_incident(store, one, "0.28.0", "killed", "", scenario(number))
    old = datetime.now(UTC) - timedelta(31)
    with store.write() as session:
        session.execute(update(Incident).where(Incident.id < 3).values(seen_at=old))
    return store


def prune(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["prune", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_a_row_for_each_rule_that_deletes(store: Store) -> None:
    lines = prune().splitlines()
    rules = [rule for rule in policy() if rule.days is not None]
    head = next(number for number, line in enumerate(lines) if line.split()[:1] == ["rule"])
    assert "deleted" in lines[head]
    for rule, line in zip(rules, lines[head + 2 :], strict=False):
        counted = {"incidents": 2, "scenarios": 2}.get(rule.name, 0)
        assert line.strip().removeprefix(rule.name).split()[:2] == [str(counted), str(rule.days)]
        assert line.endswith(rule.what)
    assert len(queries.list_incidents(store)) == 1


def test_a_dry_run_counts_and_deletes_nothing(store: Store) -> None:
    assert "to delete" in prune("--dry-run")
    said = json.loads(prune("--dry-run", "--json"))
    assert len(queries.list_incidents(store)) == 3
    done = json.loads(prune("--json"))
    assert len(queries.list_incidents(store)) == 1
    assert (said["dry_run"], done["dry_run"]) == (True, False)
    assert said["rules"] == done["rules"]
    rules = {rule["name"]: rule for rule in done["rules"]}
    assert rules["incidents"] == {
        "name": "incidents", "what": "faults of the machine", "days": 30, "rows": 2,
    }  # fmt: skip
    assert "findings" not in rules
    assert {rule["rows"] for rule in json.loads(prune("--json"))["rules"]} == {0}


def test_another_database(store: Store, tmp_path: Path) -> None:
    done = json.loads(prune("--json", "--db", f"sqlite:///{tmp_path / 'other.db'}"))
    assert {rule["rows"] for rule in done["rules"]} == {0}
    assert len(queries.list_incidents(store)) == 3


def test_the_page_says_the_policy() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert [re.split(r"\s*\|\s*", line)[1:-1] for line in lines] == [
        [f"`{rule.name}`", rule.what, *([] if rule.days is None else [str(rule.days)])]
        for rule in policy()
    ]
