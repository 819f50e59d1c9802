"""Sessions that can be listed, known addresses, password links, changes of accounts."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Bring the schema from 0004 to 0005.

    Nodes of the previous release keep running: every new column is optional.
    """
    op.add_column("sessions", sa.Column("last_seen_at", sa.BigInteger, nullable=True))
    op.add_column("sessions", sa.Column("address", sa.String(64), nullable=True))
    op.add_column("sessions", sa.Column("user_agent", sa.String(300), nullable=True))
    op.add_column("sessions", sa.Column("failures", sa.Integer, nullable=False, server_default="0"))
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.add_column("device_codes", sa.Column("address", sa.String(64), nullable=True))
    op.create_table(
        "known_addresses",
        _user_id(),
        sa.Column("address", sa.String(64), primary_key=True),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "password_resets",
        _user_id(),
        sa.Column("hash", sa.LargeBinary(32), nullable=False, unique=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "account_changes",
        sa.Column("account_id", sa.String(40), primary_key=True),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )


def _user_id() -> "sa.Column[str]":
    return sa.Column(
        "user_id",
        sa.String(40),
        sa.ForeignKey("users.id", ondelete="CASCADE"),
        primary_key=True,
    )
