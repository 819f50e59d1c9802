"""Whatever machines send: each is answered or closed with a reason, and the service goes on."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from websockets.exceptions import ConnectionClosed

from outrider.contract.frames import encode
from tests.contract.wire import Message, from_daemon
from tests.rig.machine import hello, socket
from tests.rig.site import Owner, Site
from tests.rig.waiting import TIMEOUT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store, pytest.mark.fuzz]

CLOSES = {1001, 1007, 1009, 1012, 4400, 4409, 4413, 4426, 4429}


async def talk(site: Site, token: str, messages: list[Message]) -> int | None:
    """Send these as a machine; return the code that the service closed with, None if it did not."""
    async with socket(site.gateway, token) as connection:
        try:
            for message in messages:
                await connection.send(message)
            async with asyncio.timeout(TIMEOUT):
                await (await connection.ping())
        except ConnectionClosed as end:
            return end.rcvd.code if end.rcvd else None
        return None


@given(greets=st.booleans(), messages=st.lists(from_daemon, min_size=1, max_size=8))
async def test_whatever_a_machine_says(
    owner: Owner, site: Site, greets: bool, messages: list[Message]
) -> None:
    first: list[Message] = [encode(hello()).decode()] if greets else []
    with capture_logs() as logs:
        token = (await owner.enrolls()).token
        code = await talk(site, token, [*first, *messages])
        response = await owner.api.get("/api/v1/daemons")
        assert response.status_code == 200
    assert code is None or code in CLOSES
    assert [log for log in logs if log["log_level"] in {"error", "critical", "exception"}] == []
    assert [log for log in logs if "exc_info" in log] == []


@given(messages=st.lists(from_daemon, min_size=1, max_size=8))
async def test_a_command_is_answered_whatever_else_its_machine_says(
    owner: Owner, messages: list[Message]
) -> None:
    machine = await owner.machine()
    request = owner.sends("GET", f"/api/v1/shortcuts/{machine.id}:cli:x/status")
    await machine.takes("agent_status")
    with contextlib.suppress(ConnectionClosed):
        for message in messages:
            await machine.say_raw(message)
    await machine.drops()
    assert (await request).status_code in {400, 404, 409, 413, 500, 503, 504}
