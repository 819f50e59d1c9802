"""Whatever a service sends: the machine agent takes it, or leaves and comes back."""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed

from outrider.contract.commands import CommandType, Result
from outrider.contract.frames import Command, CommandResult, encode
from outrider.machine.link.connection import LinkRefusedError
from outrider.machine.link.journal import Journal
from tests.contract import strategies
from tests.contract.wire import Message, from_service
from tests.machine.linked_machine import Machine, status_query
from tests.machine.scripted_service import ScriptedService
from tests.rig.waiting import TIMEOUT

pytestmark = pytest.mark.fuzz

commands = st.builds(
    Command,
    id=strategies.names,
    command=st.sampled_from(list(CommandType)) | strategies.names,
    payload=strategies.raw_json,
    timeout_ms=st.integers(0, 1000),
).map(lambda command: encode(command).decode())


async def nothing(_payload: Any, _deadline: float) -> Result:
    return Result()


@given(welcomes=st.booleans(), messages=st.lists(from_service | commands, min_size=1, max_size=8))
async def test_whatever_a_service_says(
    service: ScriptedService, tmp_path: Path, welcomes: bool, messages: list[Message]
) -> None:
    """The agent serves the next connection as if nothing had been, or says why it does not."""
    with capture_logs() as logs, tempfile.TemporaryDirectory(dir=tmp_path) as directory:
        journal = Journal(Path(directory) / "journal.db")
        machine = Machine(service.url, journal)
        machine.handlers |= dict.fromkeys(CommandType, nothing)
        machine.start()
        assert machine.running is not None
        peer = await service.connection()
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            if welcomes:
                await peer.welcome()
            for message in messages:
                await peer.socket.send(message)
            async with asyncio.timeout(TIMEOUT):
                await (await peer.socket.ping())
        peer.socket.transport.abort()
        while not await answers(service, machine.running):
            pass
        with contextlib.suppress(LinkRefusedError):
            await machine.close()
            await machine.running
        journal.close()
    assert [log for log in logs if "exc_info" in log or log["log_level"] == "critical"] == []


async def answers(service: ScriptedService, running: asyncio.Task[None]) -> bool:
    """Return whether the agent carries out a command on its next connection, or has ended."""
    coming = asyncio.create_task(service.connection())
    await asyncio.wait({coming, running}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        coming.cancel()
        await asyncio.wait({coming})
        return True
    peer = await coming
    try:
        await peer.welcome()
        name = f"cmd_{id(peer)}"
        await peer.say(status_query(name))
        while (await peer.hear(CommandResult)).id != name:
            pass
    except ConnectionClosed:
        return False
    finally:
        peer.socket.transport.abort()
    return True
