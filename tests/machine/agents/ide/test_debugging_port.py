"""The connection to a debugging port: Playwright's driver ends with it, whatever happens."""

import asyncio
import signal

import psutil
import pytest

from outrider.machine.agents.ide.debugging_port import DebuggingPorts
from tests.machine.conftest import eventually


def drivers() -> list[psutil.Process]:
    """Return the drivers of Playwright that this process has started."""
    return [child for child in psutil.Process().children() if _is_node(child)]


def _is_node(process: psutil.Process) -> bool:
    try:
        return "node" in process.name()
    except psutil.NoSuchProcess:
        return False


async def connect(port: int) -> None:
    async with DebuggingPorts().connection(f"http://127.0.0.1:{port}"):
        pass


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_a_connection_that_is_cancelled_while_the_driver_starts(cancellations: int) -> None:
    connecting = asyncio.create_task(connect(9))
    await eventually(lambda: bool(drivers()))
    for _ in range(20):  # its process is started, and initializes itself
        await asyncio.sleep(0)
    for _ in range(cancellations):
        connecting.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({connecting})
    assert connecting.cancelled()
    await eventually(lambda: not drivers())


async def test_a_driver_that_hangs_is_killed() -> None:
    connected = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()  # never answers
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    connecting = asyncio.create_task(connect(server.sockets[0].getsockname()[1]))
    await connected.wait()
    (driver,) = drivers()
    driver.send_signal(signal.SIGSTOP)
    connecting.cancel()
    await asyncio.wait({connecting})
    assert connecting.cancelled()
    server.close()
    await eventually(lambda: not drivers())
