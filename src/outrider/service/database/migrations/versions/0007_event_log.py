"""The log of each account's events, in the order of a cursor."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Bring the schema from 0006 to 0007.

    Nodes of the previous release keep running: their events have no cursor, and are delivered to
    webhooks as before but not in the log.
    """
    for name in ("event_cursor", "event_floor"):
        op.add_column(
            "accounts", sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        )
    op.add_column("events", sa.Column("cursor", sa.BigInteger, nullable=True))
    logged = sa.text("cursor IS NOT NULL")
    op.create_index(
        "ix_events_account_id_cursor",
        "events",
        ["account_id", "cursor"],
        unique=True,
        sqlite_where=logged,
        postgresql_where=logged,
    )
    # Only events outside the log are deleted by their age alone.
    unlogged = sa.text("cursor IS NULL")
    op.drop_index("ix_events_created_at", "events")
    op.create_index(
        "ix_events_created_at",
        "events",
        ["created_at"],
        sqlite_where=unlogged,
        postgresql_where=unlogged,
    )
