"""Nouns: what the service keeps: campaigns, jobs, nodes, corpora, poison, samples, notices."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_MOMENT = sa.DateTime(timezone=True)
_Kind = sa.types.TypeEngine | type[sa.types.TypeEngine]

# What a pruning looks for before it deletes a hunt or a scenario.
_LOOKED_UP = {
    "findings": ("hunt_id", "scenario_id", "reproducer_id"),
    "occurrences": ("hunt_id", "scenario_id"),
    "incidents": ("scenario_id",),
    "corpus_entries": ("scenario_id",),
    "poisons": ("scenario_id",),
    "samples": ("hunt_id",),
}


def upgrade() -> None:
    """Create the tables and the columns. There is no way down: restore a copy instead."""
    _campaigns_and_jobs()
    _nodes()
    _scenario_tables()
    _samples()
    _verdicts_on_findings()
    with op.batch_alter_table("hunts") as hunts:
        hunts.add_column(sa.Column("campaign_id", sa.Integer))
        hunts.add_column(sa.Column("node", sa.String))
        hunts.create_foreign_key("fk_hunts_campaign_id", "campaigns", ["campaign_id"], ["id"])
    for column in ("held_at", "released_at"):
        op.add_column("findings", sa.Column(column, _MOMENT))
    for table, columns in _LOOKED_UP.items():
        for column in columns:
            op.create_index(f"ix_{table}_{column}", table, [column])


def _required(name: str, kind: _Kind) -> sa.Column:
    return sa.Column(name, kind, nullable=False)


def _key(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=f"fk_{table}_{column}")


def _campaigns_and_jobs() -> None:
    op.create_table(
        "campaigns",
        _required("id", sa.Integer),
        *(_required(name, sa.String) for name in ("name", "before", "after", "runner")),
        _required("canary", sa.Boolean),
        *(_required(name, sa.Integer) for name in ("hunts", "priority")),
        sa.Column("budget_executions", sa.BigInteger),
        sa.Column("budget_seconds", sa.Double),
        _required("daily_cap", sa.Integer),
        _required("options", sa.JSON),
        _required("state", sa.String),
        sa.Column("reason", sa.Text),
        _required("created_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_campaigns"),
        sa.UniqueConstraint("name", name="uq_campaigns_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "jobs",
        _required("id", sa.Integer),
        sa.Column("campaign_id", sa.Integer),
        sa.Column("finding_id", sa.Integer),
        *(_required(name, sa.String) for name in ("kind", "subject", "state")),
        _required("attempts", sa.Integer),
        _required("token", sa.BigInteger),
        sa.Column("owner", sa.String),
        sa.Column("node", sa.String),
        sa.Column("lease_until", _MOMENT),
        *(_required(name, _MOMENT) for name in ("not_before", "created_at")),
        sa.Column("ended_at", _MOMENT),
        sa.Column("error", sa.Text),
        sa.Column("result", sa.JSON),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("kind", "subject", name="uq_jobs_kind_subject"),
        _key("jobs", "campaign_id", "campaigns"),
        _key("jobs", "finding_id", "findings"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_jobs_state_kind", "jobs", ["state", "kind"])


def _nodes() -> None:
    op.create_table(
        "nodes",
        _required("id", sa.String(64)),
        _required("address", sa.String),
        _required("resources", sa.JSON),
        _required("alive", sa.Boolean),
        *(_required(name, _MOMENT) for name in ("first_seen_at", "heartbeat_at")),
        sa.PrimaryKeyConstraint("id", name="pk_nodes"),
    )
    op.create_table(
        "node_targets",
        _required("node_id", sa.String(64)),
        _required("release", sa.String),
        _required("state", sa.String),
        sa.Column("reason", sa.Text),
        _required("failures", sa.Integer),
        sa.Column("until", _MOMENT),
        _required("changed_at", _MOMENT),
        sa.PrimaryKeyConstraint("node_id", "release", name="pk_node_targets"),
        _key("node_targets", "node_id", "nodes"),
    )


def _scenario_tables() -> None:
    """Create what a pair knows of scenarios: its corpus, and those that kill workers."""
    columns = {
        "corpus_entries": (
            _required("kept", sa.Boolean), _required("added_at", _MOMENT),
            sa.Column("dropped_at", _MOMENT),
        ),
        "poisons": (
            _required("deaths", sa.Integer), _required("quarantined", sa.Boolean),
            _required("detail", sa.Text), _required("last_at", _MOMENT),
        ),
    }  # fmt: skip
    for table, own in columns.items():
        op.create_table(
            table,
            _required("before", sa.String),
            _required("after", sa.String),
            _required("scenario_id", sa.String(64)),
            *own,
            sa.PrimaryKeyConstraint("before", "after", "scenario_id", name=f"pk_{table}"),
            _key(table, "scenario_id", "scenarios"),
        )


def _samples() -> None:
    counts = (
        "corpus", "sites_before", "sites_after", "features", "findings", "infra", "restarts",
    )  # fmt: skip
    op.create_table(
        "samples",
        *(_required(name, sa.Integer) for name in ("id", "campaign_id", "hunt_id")),
        _required("at", _MOMENT),
        _required("executions", sa.BigInteger),
        _required("seconds", sa.Double),
        *(_required(name, sa.Integer) for name in counts),
        _required("memory", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_samples"),
        _key("samples", "campaign_id", "campaigns"),
        _key("samples", "hunt_id", "hunts"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_samples_campaign_id_at", "samples", ["campaign_id", "at"])


def _verdicts_on_findings() -> None:
    op.create_table(
        "verifications",
        _required("finding_id", sa.Integer),
        *(_required(name, sa.String) for name in ("target", "outcome")),
        *(_required(name, sa.Integer) for name in ("runs", "hits")),
        _required("at", _MOMENT),
        sa.PrimaryKeyConstraint("finding_id", "target", name="pk_verifications"),
        _key("verifications", "finding_id", "findings"),
    )
    op.create_table(
        "notices",
        *(_required(name, sa.Integer) for name in ("id", "finding_id")),
        *(_required(name, sa.String) for name in ("channel", "state")),
        _required("attempts", sa.Integer),
        *(_required(name, _MOMENT) for name in ("not_before", "created_at")),
        sa.Column("sent_at", _MOMENT),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
        sa.UniqueConstraint("finding_id", "channel", name="uq_notices_finding_id_channel"),
        _key("notices", "finding_id", "findings"),
        sqlite_autoincrement=True,
    )
