"""Nouns: Alembic's entry point.

Only `schedfuzz.db.migrate` runs it, on a connection whose transaction already holds the lock.
"""

from alembic import context

from schedfuzz.db.migrate import VERSION_TABLE
from schedfuzz.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
