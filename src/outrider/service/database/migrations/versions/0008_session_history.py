"""The sessions of every machine, running and ended."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Bring the schema from 0007 to 0008.

    Nodes of the previous release keep running; what they learn of sessions is added when their
    machines connect to a newer node.
    """
    op.create_table(
        "session_history",
        sa.Column(
            "machine_id",
            sa.String(40),
            sa.ForeignKey("machines.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column(
            "account_id",
            sa.String(40),
            sa.ForeignKey("accounts.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("last_activity_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=True),
        sa.Column("end_reason", sa.String(20), nullable=True),
        sa.Column("search", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "ix_session_history_account_id_created_at_id",
        "session_history",
        ["account_id", "created_at", "id"],
    )
    op.create_index("ix_session_history_ended_at", "session_history", ["ended_at"])
