"""What a service stores in: files and memory, or servers that several nodes share."""

import asyncio
import itertools
import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from outrider.service.database.engine import Database
from outrider.service.settings import Settings
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

Addresses = dict[str, Any]
"""Settings that lead a service to its stores; none for the files in its data directory."""


class Store(ABC):
    """Gives each service that asks a database of its own."""

    name: ClassVar[str]

    @abstractmethod
    def empty(self) -> Addresses:
        """Return the addresses of a database without tables, for a service of any directory."""

    @abstractmethod
    def migrated(self, data_dir: Path) -> Addresses:
        """Return the addresses of a database with the newest schema, for this directory's service.

        It is a copy: migrating takes a while.
        """


class SQLite(Store):
    """A file in the data directory, and memory."""

    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._template = directory / "outrider.db"
        _migrate(Settings(data_dir=directory))

    def empty(self) -> Addresses:
        """Return nothing: the service makes the file."""
        return {}

    def migrated(self, data_dir: Path) -> Addresses:
        """Put the file into the directory."""
        data_dir.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._template, data_dir / "outrider.db")
        return {}


class PostgreSQL(Store):
    """A database of a PostgreSQL, and one of a Redis."""

    name = "postgresql"

    def __init__(self, postgres: Postgres, redis: Redis) -> None:
        self._postgres = postgres
        self._redis = redis
        self._numbers = itertools.count(1)
        _migrate(Settings(database_url=postgres.create("migrated")))

    def empty(self) -> Addresses:
        """Make a database."""
        return self._new("template0")

    def migrated(self, data_dir: Path) -> Addresses:
        """Copy the migrated database; the directory has no part in it."""
        data_dir.mkdir(parents=True, exist_ok=True)
        return self._new("migrated")

    def _new(self, template: str) -> Addresses:
        number = next(self._numbers)
        return {
            "database_url": self._postgres.create(f"site{number}", template),
            "redis_url": self._redis.url(number),
        }


def damage_table(database: Path, table: str) -> None:
    """Overwrite the first page of a table in an SQLite file."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (page,) = connection.execute(query, (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"x" * size)


def _migrate(settings: Settings) -> None:
    async def migrate() -> None:
        database = Database(settings.sqlalchemy_url)
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
