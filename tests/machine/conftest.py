"""What the tests of the machine agent share."""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import uvloop

from outrider.machine.link.journal import Journal
from tests.machine.linked_machine import Machine
from tests.machine.scripted_service import ScriptedService
from tests.rig.waiting import TIMEOUT


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run on the loop that `outrider daemon` runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted servers are on loopback, whatever proxy this machine has."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> None:
    """Fail a test that leaves a task or a child process behind.

    A test without an event loop starts neither, and is spared the loop and the look.
    """
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue(look_behind.__name__)


@pytest.fixture
async def look_behind() -> AsyncIterator[None]:
    """Compare the tasks and child processes before and after a test; wait for those that end."""
    before = {child.pid for child in descendants()}
    tasks = asyncio.all_tasks()
    yield
    left: set[asyncio.Task[object]] = set()
    children: list[psutil.Process] = []

    def all_ended() -> bool:
        left.clear()
        left.update(asyncio.all_tasks() - tasks - {asyncio.current_task()})
        children[:] = [child for child in descendants() if child.pid not in before]
        return not left and not children

    try:
        await eventually(all_ended)
    except AssertionError:
        pytest.fail(f"left behind: {left or ''} {children or ''}")


def descendants() -> list[psutil.Process]:
    """Return the processes below this one. Most tests have none, which the kernel tells fast."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return psutil.Process().children(recursive=True)


@pytest.fixture
async def service(nothing_left: object) -> AsyncIterator[ScriptedService]:
    service = ScriptedService()
    await service.start()
    yield service
    await service.stop()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.db")
    yield journal
    journal.close()


@pytest.fixture
async def machine(service: ScriptedService, journal: Journal) -> AsyncIterator[Machine]:
    machine = Machine(service.url, journal)
    yield machine
    await machine.close()


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], message: str = "", within: float = TIMEOUT
) -> None:
    """Wait until `condition` holds; fail with `message` where it does not in time."""
    async with asyncio.timeout(within + 1):
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while True:
            before = loop.time()
            result = condition()
            if result if isinstance(result, bool) else await result:
                return
            now = loop.time()
            assert now < end, message or "it never became true"
            # A look that takes long (the process table) must not keep a core busy.
            await asyncio.sleep(min(max(0.01, now - before), 0.1))
