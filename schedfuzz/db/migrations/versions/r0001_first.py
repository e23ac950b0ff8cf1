"""Nouns: the first schema: hunts, scenarios, findings, occurrences, incidents.

A revision describes its moment, so it repeats the columns instead of importing the models.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables. There is no way down: restore a copy instead."""
    _hunts_and_scenarios()
    _findings()
    _occurrences()
    _incidents()


def _required(name: str, kind: sa.types.TypeEngine | type[sa.types.TypeEngine]) -> sa.Column:
    return sa.Column(name, kind, nullable=False)


def _hunts_and_scenarios() -> None:
    op.create_table(
        "hunts",
        _required("id", sa.Integer),
        _required("before", sa.String),
        _required("after", sa.String),
        _required("seed", sa.BigInteger),
        _required("state", sa.String),
        _required("started_at", _MOMENT),
        sa.Column("ended_at", _MOMENT),
        _required("executions", sa.BigInteger),
        _required("seconds", sa.Double),
        _required("options", sa.JSON),
        sa.PrimaryKeyConstraint("id", name="pk_hunts"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "scenarios",
        _required("id", sa.String(64)),
        _required("data", sa.Text),
        _required("requests", sa.Integer),
        _required("events", sa.Integer),
        _required("schema", sa.Integer),
        sa.PrimaryKeyConstraint("id", name="pk_scenarios"),
    )


def _scenario_key(table: str, column: str, deferred: bool = False) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}"
    if not deferred:
        return sa.ForeignKeyConstraint([column], ["scenarios.id"], name=name)
    return sa.ForeignKeyConstraint(
        [column], ["scenarios.id"], name=name, deferrable=True, initially="DEFERRED"
    )


def _hunt_key(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["hunt_id"], ["hunts.id"], name=f"fk_{table}_hunt_id")


def _findings() -> None:
    texts = ("before", "after", "fingerprint", "verdict", "kind", "rule")
    reproducer = ("reproducer_requests", "reproducer_events", "reproducer_steps")
    op.create_table(
        "findings",
        _required("id", sa.Integer),
        *(_required(name, sa.String) for name in texts),
        _required("title", sa.Text),
        _required("detail", sa.Text),
        _required("status", sa.String),
        _required("count", sa.BigInteger),
        _required("hunt_id", sa.Integer),
        _required("executions_to_find", sa.BigInteger),
        _required("seconds_to_find", sa.Double),
        _required("first_seen_at", _MOMENT),
        _required("last_seen_at", _MOMENT),
        _required("scenario_id", sa.String(64)),
        _required("reproducer_id", sa.String(64)),
        *(_required(name, sa.Integer) for name in reproducer),
        _required("minimize_state", sa.String),
        _required("minimize_calls", sa.Integer),
        _required("confirm_runs", sa.Integer),
        _required("confirm_hits", sa.Integer),
        sa.Column("export_path", sa.Text),
        _hunt_key("findings"),
        _scenario_key("findings", "scenario_id", deferred=True),
        _scenario_key("findings", "reproducer_id", deferred=True),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
        sa.UniqueConstraint(
            "before", "after", "fingerprint", name="uq_findings_before_after_fingerprint"
        ),
        sqlite_autoincrement=True,
    )


def _occurrences() -> None:
    op.create_table(
        "occurrences",
        _required("id", sa.Integer),
        _required("finding_id", sa.Integer),
        _required("hunt_id", sa.Integer),
        _required("scenario_id", sa.String(64)),
        _required("execution", sa.BigInteger),
        _required("seconds", sa.Double),
        _required("seen_at", _MOMENT),
        sa.ForeignKeyConstraint(["finding_id"], ["findings.id"], name="fk_occurrences_finding_id"),
        _hunt_key("occurrences"),
        _scenario_key("occurrences", "scenario_id"),
        sa.PrimaryKeyConstraint("id", name="pk_occurrences"),
    )
    op.create_index("ix_occurrences_finding_id", "occurrences", ["finding_id"])


def _incidents() -> None:
    op.create_table(
        "incidents",
        _required("id", sa.Integer),
        _required("hunt_id", sa.Integer),
        _required("target", sa.String),
        sa.Column("scenario_id", sa.String(64)),
        _required("what", sa.String),
        _required("detail", sa.Text),
        _required("seen_at", _MOMENT),
        _hunt_key("incidents"),
        _scenario_key("incidents", "scenario_id"),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
    )
    op.create_index("ix_incidents_hunt_id", "incidents", ["hunt_id"])
