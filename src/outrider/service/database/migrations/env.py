"""Alembic's entry: it is given an open connection by `run.upgrade`."""

from alembic import context

from outrider.service.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
