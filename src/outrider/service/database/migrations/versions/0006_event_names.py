"""Webhooks that were subscribed to all events keep the six that there were."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_SIX = [
    "agent:generating_started",
    "agent:generating_completed",
    "agent:waiting_approval",
    "agent:error",
    "machine:connected",
    "machine:disconnected",
]

_webhooks = sa.table("webhooks", sa.column("id", sa.String), sa.column("events", sa.JSON))


def upgrade() -> None:
    """Replace `*` by the names that it stood for in the previous release."""
    connection = op.get_bind()
    for webhook_id, events in connection.execute(
        sa.select(_webhooks.c.id, _webhooks.c.events)
    ).fetchall():
        if "*" in events:
            named = [*_SIX, *(event for event in events if event not in {*_SIX, "*"})]
            connection.execute(
                sa.update(_webhooks).where(_webhooks.c.id == webhook_id).values(events=named)
            )
