"""Webhooks, events and deliveries; the newest event stored of each machine."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables of the webhooks."""
    with op.batch_alter_table("machines") as machines:
        machines.add_column(
            sa.Column("event_seq", sa.BigInteger, nullable=False, server_default="0")
        )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(40), primary_key=True),
        _account_id(),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("old_secret", sa.LargeBinary, nullable=True),
        sa.Column("old_secret_until", sa.BigInteger, nullable=True),
        sa.Column("disabled_reason", sa.Text, nullable=True),
        sa.Column("failing_since", sa.BigInteger, nullable=True),
        sa.Column("last_delivery", sa.JSON, nullable=True),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.String(40), primary_key=True),
        _account_id(),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column(
            "webhook_id",
            sa.String(40),
            sa.ForeignKey("webhooks.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("event_id", sa.String(40), sa.ForeignKey("events.id"), nullable=False),
        sa.Column("event", sa.String(40), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("attempts", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("completed_at", sa.BigInteger, nullable=True),
        sa.Column("next_attempt_at", sa.BigInteger, nullable=True),
        sa.Column("claimed_until", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_webhooks_account_id", "webhooks", ["account_id"])
    op.create_index("ix_events_created_at", "events", ["created_at"])
    op.create_index("ix_deliveries_event_id", "deliveries", ["event_id"])
    op.create_index("ix_deliveries_webhook_id_id", "deliveries", ["webhook_id", "id"])
    op.create_index("ix_deliveries_completed_at", "deliveries", ["completed_at"])
    pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_deliveries_due",
        "deliveries",
        ["next_attempt_at"],
        sqlite_where=pending,
        postgresql_where=pending,
    )


def _account_id() -> "sa.Column[str]":
    return sa.Column(
        "account_id",
        sa.String(40),
        sa.ForeignKey("accounts.id", ondelete="CASCADE"),
        nullable=False,
    )
