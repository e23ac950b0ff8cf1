"""Nouns: what people decide: audit rows, rules that mute, and the traces they look at."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_MOMENT = sa.DateTime(timezone=True)
_Kind = sa.types.TypeEngine | type[sa.types.TypeEngine]


def upgrade() -> None:
    """Create the tables and the columns. There is no way down: restore a copy instead."""
    _rules()
    _decisions()
    _traces()
    with op.batch_alter_table("findings", table_kwargs={"sqlite_autoincrement": True}) as findings:
        findings.add_column(sa.Column("fixed_in", sa.String))
        for name in ("dup_of", "merged_into", "muted_by"):
            findings.add_column(sa.Column(name, sa.Integer))
        findings.add_column(sa.Column("muted_until", _MOMENT))
        for name in ("dup_of", "merged_into"):
            findings.create_foreign_key(f"fk_findings_{name}", "findings", [name], ["id"])
        findings.create_foreign_key("fk_findings_muted_by", "mute_rules", ["muted_by"], ["id"])
    for name in ("merged_into", "status"):
        op.create_index(f"ix_findings_{name}", "findings", [name])


def _required(name: str, kind: _Kind) -> sa.Column:
    return sa.Column(name, kind, nullable=False)


def _key(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{to}.id"], name=f"fk_{table}_{column}")


def _rules() -> None:
    op.create_table(
        "mute_rules",
        _required("id", sa.Integer),
        _required("match", sa.JSON),
        _required("owner", sa.String),
        _required("reason", sa.Text),
        sa.Column("pr", sa.String),
        *(_required(name, _MOMENT) for name in ("expires_at", "created_at")),
        sa.Column("removed_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_mute_rules"),
        sqlite_autoincrement=True,
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        _required("id", sa.Integer),
        *(sa.Column(name, sa.Integer) for name in ("finding_id", "rule_id")),
        *(_required(name, sa.String) for name in ("verb", "actor")),
        _required("note", sa.Text),
        *(_required(name, sa.JSON) for name in ("was", "became")),
        _required("at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_decisions"),
        _key("decisions", "finding_id", "findings"),
        _key("decisions", "rule_id", "mute_rules"),
        sqlite_autoincrement=True,
    )
    for name in ("finding_id", "rule_id"):
        op.create_index(f"ix_decisions_{name}", "decisions", [name])


def _traces() -> None:
    op.create_table(
        "finding_traces",
        _required("finding_id", sa.Integer),
        _required("side", sa.String(6)),
        _required("scenario_id", sa.String(64)),
        _required("data", sa.Text),
        sa.PrimaryKeyConstraint("finding_id", "side", name="pk_finding_traces"),
        _key("finding_traces", "finding_id", "findings"),
        _key("finding_traces", "scenario_id", "scenarios"),
    )
    op.create_index("ix_finding_traces_scenario_id", "finding_traces", ["scenario_id"])
