"""Nouns: a finding's component: whose fault a violation is, NULL for a divergence.

What was stored before was found on the simulated runner, which is never at fault itself.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column. There is no way down: restore a copy instead."""
    op.add_column("findings", sa.Column("component", sa.String))
    findings = sa.table("findings", sa.column("component"), sa.column("verdict"))
    broken = findings.c.verdict != "changed"
    op.execute(findings.update().where(broken).values(component="scheduler"))
