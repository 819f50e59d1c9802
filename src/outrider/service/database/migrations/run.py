"""Runs the migrations on an open connection."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from outrider.service.database.engine import HEAD


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Bring the schema to a revision, the newest one, in the connection's transaction."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
