"""Fixtures for every test.

A service takes a fifth of a second to start and stop, so most tests share one: each has an
account of its own there, which is all that tells tests apart. Tests that share it run on the
session's event loop (`pytestmark = pytest.mark.asyncio(loop_scope="session")`).

A test that uses a service or a database runs twice: on SQLite and memory, and on PostgreSQL and
Redis. What says nothing of the store (the form of a body, what is refused before the store is
asked, the pages, a socket, one program alone) is marked `one_store` and runs on SQLite. Each
process of pytest-xdist starts servers of its own when it first needs them.
"""

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from outrider.service.database.engine import Database
from outrider.service.events.streams import StreamTimes
from outrider.service.http.endpoint import BoundEndpoint
from outrider.service.settings import Settings
from tests import fuzzing
from tests.fuzzing import pytest_collection_finish, pytest_runtest_call  # noqa: F401  # hooks
from tests.machine.agents.machine import StubModel, stub_model
from tests.rig.people import person
from tests.rig.private import private
from tests.rig.site import Owner, Site
from tests.rig.stores import PostgreSQL, SQLite, Store
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis

fuzzing.load_profile()

# A shell starts a background command with SIGINT ignored, and our programs would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGTERM, to `make` for example, ends the tests like Ctrl-C: the fixtures end what they started.
signal.signal(signal.SIGTERM, signal.default_int_handler)

StartSite = Callable[..., Awaitable[Site]]

RATE_LIMIT_SECONDS: Final = {
    "rate_limit_key": 60,
    "rate_limit_session": 60,
    "rate_limit_ip": 60,
    "rate_limit_auth": 300,
    "rate_limit_login": 3600,
}
"""The windows of the service's limits."""

SLOWEST: Final = (
    "dashboard/",
    "system/",
    "cli/",
    "sdk/",
    "recipes/",
    "service/accounts/test_quota.py",
    "machine/agents/acp/test_agent_faults.py",
    "machine/agents/cli/transcripts/",
    "machine/redaction/",
    "machine/terminals/test_terminal.py",
    "demo/",
    "machine/debug/",
    "service/http/test_http_protocol.py",
    "service/http/test_websocket.py",
    "service/webhooks/",
    "service/accounts/",
)
"""The slowest files run first, so that no process is left alone with one of them at the end."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the garbage collector out of the collection of tests.

    It finds nothing there, and would examine thousands of tests again and again later.
    """
    gc.disable()
    try:
        _import_share()
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share() -> None:
    """Import this process's share of the test files, where pytest-xdist runs several processes.

    pytest rewrites the asserts of a file at its first import and keeps the result. Each process
    collects all files, and without shares all of them would rewrite each file at the same time.
    """
    number, count = (
        os.environ.get("PYTEST_XDIST_WORKER"),
        os.environ.get("PYTEST_XDIST_WORKER_COUNT"),
    )
    if number is None or count is None:
        return
    root = Path(__file__).parent
    files = sorted(root.rglob("test_*.py"))
    for file in files[int(number.removeprefix("gw")) :: int(count)]:
        name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            import_module(name)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what uses a store on each of them."""
    if "store" in metafunc.fixturenames:
        alone = metafunc.definition.get_closest_marker("one_store") is not None
        names = ["sqlite"] if alone else ["sqlite", "postgresql"]
        metafunc.parametrize("store", names, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the slowest files run first."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    file = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((i for i, slow in enumerate(SLOWEST) if file.startswith(slow)), len(SLOWEST))


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """Nothing that this machine happens to have set reaches a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("OUTRIDER_", "OTEL_")) or name.lower().endswith("_proxy"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubModel]:
    """The stub model that real agents and IDEs ask."""
    with stub_model(tmp_path_factory.mktemp("stub")) as stub:
        yield stub


@pytest.fixture(scope="session")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> SQLite:
    """Files and memory."""
    return SQLite(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Private servers; tests that need them are skipped where they are not installed."""
    with private(Postgres) as postgres, private(Redis) as redis:
        yield PostgreSQL(postgres, redis)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """What the test's services store in; by its name, so that both stay for all tests."""
    chosen: Store = request.getfixturevalue(request.param)
    return chosen


def settings(data_dir: Path, store: Store, **changes: Any) -> Settings:
    """Return the default settings with limits that no test reaches, and these changes."""
    values: dict[str, Any] = {
        "port": 0,
        "data_dir": data_dir,
        "rate_limit_key": 1_000_000,
        "rate_limit_session": 1_000_000,
        "rate_limit_ip": 1_000_000,
        "rate_limit_auth": 1_000_000,
        "drain_delay": 0,  # no test has a load balancer that has to notice
        "history_days": 365 * 100,  # the sessions of `samples` ended years ago
    }
    return Settings(**values | store.migrated(data_dir) | changes)


@asynccontextmanager
async def running(chosen: Settings) -> AsyncIterator[Site]:
    """Run a service for a block."""
    one = Site(chosen)
    await one.start()
    yield one
    await one.close()


@pytest_asyncio.fixture(loop_scope="session")
async def database(tmp_path: Path, store: Store) -> AsyncIterator[Database]:
    """A database of the test's own, with no service on it."""
    mine = Database(settings(tmp_path / "data", store).sqlalchemy_url)
    yield mine
    await mine.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_site(
    sqlite: SQLite, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with running(settings(tmp_path_factory.mktemp("site") / "data", sqlite)) as shared:
        yield shared


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgresql_site(
    postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    async with running(settings(tmp_path_factory.mktemp("site") / "data", postgresql)) as shared:
        yield shared


@pytest.fixture
def site(store: Store, request: pytest.FixtureRequest) -> Site:
    """The service that tests share; each store has its own."""
    shared: Site = request.getfixturevalue(f"{store.name}_site")
    return shared


@pytest_asyncio.fixture(loop_scope="session")
async def owner(site: Site) -> AsyncIterator[Owner]:
    """An account of the shared service; its machines and clients end with the test."""
    async with site.visit():
        yield await site.account()


@pytest_asyncio.fixture(loop_scope="session")
async def user(site: Site) -> AsyncIterator[Owner]:
    """An account of the shared service, whose user may log in."""
    async with site.visit():
        yield await person(site)


async def early_in_a_window(seconds: int = 60) -> None:
    """Return once the window of a rate limit has at least 15 seconds left.

    The windows begin with the minutes, or hours, of the clock. At the end of one, hits lose weight,
    and a test that counts requests one by one would see one more left.
    """
    left = seconds - time.time() % seconds
    if left < 15:
        await asyncio.sleep(left + 0.1)


@pytest_asyncio.fixture(loop_scope="session")
async def start_site(tmp_path: Path, store: Store) -> AsyncIterator[StartSite]:
    """Start a service of the test's own, with these settings."""
    sites: list[Site] = []

    async def start(
        more_endpoints: Sequence[BoundEndpoint] = (),
        stream_times: StreamTimes | None = None,
        **changes: Any,
    ) -> Site:
        windows = [RATE_LIMIT_SECONDS[name] for name in changes if name.startswith("rate_limit_")]
        if windows:
            await early_in_a_window(min(windows))
        chosen = settings(tmp_path / f"site{len(sites)}", store, **changes)
        mine = Site(chosen, more_endpoints, stream_times=stream_times)
        sites.append(mine)
        await mine.start()
        return mine

    yield start
    for mine in sites:
        await mine.close()
