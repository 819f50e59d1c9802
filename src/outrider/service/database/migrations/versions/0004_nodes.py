"""Which node has a machine's socket."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Bring the schema from 0003 to 0004."""
    op.add_column("machines", sa.Column("node", sa.String(12), nullable=True))
    op.add_column(
        "machines",
        sa.Column("connection", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(12), primary_key=True),
        sa.Column("beats", sa.BigInteger, nullable=False),
    )
