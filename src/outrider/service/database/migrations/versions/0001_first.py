"""Accounts, users, API keys, machines and enrolment codes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(40), primary_key=True),
        sa.Column("plan", sa.String(20), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.String(40), primary_key=True),
        _account_id(),
        sa.Column("email", sa.String(320), nullable=False, unique=True),
        sa.Column("password_hash", sa.Text, nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(40), primary_key=True),
        _account_id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("prefix", sa.String(16), nullable=False),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=True),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
        sa.Column("last_used_at", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "machines",
        sa.Column("id", sa.String(40), primary_key=True),
        _account_id(),
        sa.Column("nickname", sa.Text, nullable=False),
        sa.Column("hostname", sa.Text, nullable=False),
        sa.Column("platform", sa.String(40), nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=True, unique=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("connected", sa.Boolean, nullable=False),
        sa.Column("connected_at", sa.BigInteger, nullable=True),
        sa.Column("last_seen_at", sa.BigInteger, nullable=True),
        sa.Column("snapshot", sa.LargeBinary, nullable=True),
    )
    op.create_table(
        "enrolment_codes",
        sa.Column("hash", sa.LargeBinary(32), primary_key=True),
        _account_id(),
        sa.Column("nickname", sa.Text, nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    for table in ("users", "api_keys", "machines"):
        op.create_index(f"ix_{table}_account_id", table, ["account_id"])
    op.create_index("ix_machines_connected", "machines", ["connected"])


def _account_id() -> "sa.Column[str]":
    return sa.Column(
        "account_id",
        sa.String(40),
        sa.ForeignKey("accounts.id", ondelete="CASCADE"),
        nullable=False,
    )
