"""The service of this release with the database and the machine agents of the previous one.

On SQLite and on PostgreSQL: a migration does different things on them.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text
from websockets.asyncio.client import ClientConnection

from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.settings import Settings
from tests.conftest import running
from tests.rig import previous_release as previous
from tests.rig.machine import socket
from tests.rig.people import login
from tests.rig.site import Owner, Site
from tests.rig.stores import Store
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def chosen(store: Store, tmp_path: Path) -> Settings:
    """Settings for the previous release's database; nothing in it is too old to keep."""
    (tmp_path / "data").mkdir()
    made = Settings(
        port=0,
        data_dir=tmp_path / "data",
        drain_delay=0,
        secret_key=previous.SECRET_KEY,
        history_days=365 * 100,
        **store.empty(),
    )
    if made.database_url is None:
        previous.create_database(made.data_dir / "outrider.db")
    else:
        await previous.fill_postgresql(made.database_url)
    return made


@pytest_asyncio.fixture(loop_scope="session")
async def upgraded(chosen: Settings) -> AsyncIterator[Site]:
    """A service of this release on that database."""
    async with running(chosen) as site, site.visit():
        yield site


def rows(connection: Connection) -> dict[str, int]:
    """Return how many rows each table has."""
    names = inspect(connection).get_table_names()
    return {name: connection.scalar(text(f"SELECT count(*) FROM {name}")) or 0 for name in names}


async def answer(connection: ClientConnection, kind: str) -> dict[str, object]:
    """Return the service's next frame of a kind."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            frame: dict[str, object] = json.loads(await connection.recv())
            if frame["type"] == kind:
                return frame


async def test_the_migrated_database_has_the_schema_and_every_row(chosen: Settings) -> None:
    database = Database(chosen.sqlalchemy_url)
    async with database.engine.connect() as connection:
        before = await connection.run_sync(rows)
    assert before["machines"] == before["webhooks"] == before["users"] == 1
    await database.migrate()
    async with database.engine.connect() as connection:
        differences = await connection.run_sync(
            lambda sync: compare_metadata(MigrationContext.configure(sync), tables.metadata)
        )
        after = await connection.run_sync(rows)
    await database.close()
    assert differences == []
    assert {name: after.get(name) for name in before} == before


async def test_keys_users_webhooks_and_sessions_are_served(upgraded: Site) -> None:
    api = upgraded.client(previous.API_KEY)
    (machine,) = (await api.get("/api/v1/daemons")).json()["daemons"]
    assert (machine["id"], machine["nickname"]) == (previous.MACHINE_ID, "Bench")
    (webhook,) = (await api.get("/api/v1/webhooks")).json()["webhooks"]
    assert (webhook["url"], webhook["events"]) == ("http://127.0.0.1:9/hook", ["*"])
    listed = (await api.get("/api/v1/sessions")).json()["sessions"]
    assert {session["id"] for session in listed} == {
        previous.ENDED_SESSION,
        previous.RUNNING_SESSION,
    }
    logged_in = await login(upgraded, previous.EMAIL, previous.PASSWORD)
    assert logged_in.status_code == 200


async def test_a_machine_agent_reconnects_with_its_token(upgraded: Site) -> None:
    """Its events go on where the service before had stored them."""
    async with socket(upgraded.gateway, previous.CONNECTION_TOKEN) as connection:
        await connection.send(previous.frames("machine")[0])
        welcome = await answer(connection, "welcome")
    assert welcome["protocol"] == 1
    assert welcome["daemonId"] == previous.MACHINE_ID
    assert welcome["acknowledged"] == previous.LAST_EVENT


@pytest.mark.one_store
async def test_what_a_machine_agent_says_is_understood(owner: Owner, site: Site) -> None:
    """Its hello, changes, results and events, as it sent them."""
    enrolled = await owner.enrolls()
    first, *later = previous.frames("machine")
    assert json.loads(later.pop())["type"] == "goodbye"
    async with socket(site.gateway, enrolled.token) as connection:
        await connection.send(first)
        assert (await answer(connection, "welcome"))["acknowledged"] == 0
        for message in later:
            await connection.send(message)
        while (await answer(connection, "ack"))["seq"] != previous.LAST_EVENT:
            pass

        async def running_sessions() -> bool:
            path = f"/api/v1/daemons/{enrolled.daemon_id}/status"
            shown = (await owner.api.get(path)).json()["sessions"]
            return [session["id"] for session in shown] == [previous.RUNNING_SESSION]

        await eventually(running_sessions)
