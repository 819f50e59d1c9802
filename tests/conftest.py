"""Fixtures for every test.

A service takes a fifth of a second to start and stop, so most tests share one: each has an
account of its own there, which is all that tells tests apart. Tests that share it run on the
session's event loop (`pytestmark = pytest.mark.asyncio(loop_scope="session")`).
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from outrider.cloud.settings import Settings
from outrider.cloud.store.database import Database
from tests.service.site import Owner, Site

StartSite = Callable[..., Awaitable[Site]]


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """Nothing that this machine happens to have set reaches a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("OUTRIDER_") or name.lower().endswith("_proxy"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the newest schema, to be copied: migrating takes a while."""
    path = tmp_path_factory.mktemp("database") / "outrider.db"

    async def migrate() -> None:
        database = Database(f"sqlite+aiosqlite:///{path}")
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    return path


def settings(data_dir: Path, migrated: Path, **changes: Any) -> Settings:
    """Return the contract's settings with rates that no test reaches, and these changes."""
    data_dir.mkdir()
    shutil.copy(migrated, data_dir / "outrider.db")
    values: dict[str, Any] = {
        "port": 0,
        "data_dir": data_dir,
        "rate_limit_key": 1_000_000,
        "rate_limit_ip": 1_000_000,
        "rate_limit_auth": 1_000_000,
    }
    return Settings(**values | changes)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> AsyncIterator[Site]:
    """The service that tests share."""
    shared = Site(settings(tmp_path_factory.mktemp("site") / "data", migrated))
    await shared.start()
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="session")
async def owner(site: Site) -> AsyncIterator[Owner]:
    """An account of the shared service; its machines and clients end with the test."""
    async with site.visit():
        yield await site.account()


@pytest_asyncio.fixture(loop_scope="session")
async def start_site(tmp_path: Path, migrated: Path) -> AsyncIterator[StartSite]:
    """Start a service of the test's own, with these settings."""
    sites: list[Site] = []

    async def start(**changes: Any) -> Site:
        mine = Site(settings(tmp_path / f"site{len(sites)}", migrated, **changes))
        sites.append(mine)
        await mine.start()
        return mine

    yield start
    for mine in sites:
        await mine.close()
