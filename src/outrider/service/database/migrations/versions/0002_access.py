"""Dashboard sessions, device codes, monthly usage, audit, idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables of the access layer."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column(
            "user_id", sa.String(40), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False
        ),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "device_codes",
        sa.Column("hash", sa.LargeBinary(32), primary_key=True),
        sa.Column("user_code_hash", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("machine", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("polled_at", sa.BigInteger, nullable=False),
        _account_id(nullable=True),
        sa.Column("denied", sa.Boolean, nullable=False),
    )
    op.create_table(
        "usage",
        _account_id(primary_key=True),
        sa.Column("month", sa.String(7), primary_key=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("account_id", sa.String(40), nullable=True),
        sa.Column("principal", sa.String(40), nullable=True),
        sa.Column("action", sa.String(100), nullable=False),
        sa.Column("target", sa.String(300), nullable=True),
        sa.Column("outcome", sa.Integer, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(40), nullable=False),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("principal", sa.String(40), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("fingerprint", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer, nullable=True),
        sa.Column("response", sa.LargeBinary, nullable=True),
    )
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_index("ix_device_codes_expires_at", "device_codes", ["expires_at"])
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_account_id_id", "audit", ["account_id", "id"])
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])


def _account_id(*, nullable: bool = False, primary_key: bool = False) -> "sa.Column[str]":
    return sa.Column(
        "account_id",
        sa.String(40),
        sa.ForeignKey("accounts.id", ondelete="CASCADE"),
        nullable=nullable,
        primary_key=primary_key,
    )
