"""Requests that wait: they end with their credential."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from outrider.service.accounts import credentials
from outrider.service.accounts.store import api_keys
from outrider.service.events.streams import StreamTimes
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine
from tests.rig.people import dashboard, person
from tests.rig.samples import TURN
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

GENERATING = TURN | {"reason": None, "status": "generating", "messages": []}


@pytest_asyncio.fixture(loop_scope="session")
async def quick(start_site: StartSite) -> AsyncIterator[Owner]:
    """An account of a service that often checks the credentials of those who wait."""
    site = await start_site(stream_times=StreamTimes(check=0.05))
    async with site.visit():
        yield await person(site)


async def begins(
    kind: str, owner: Owner, client: httpx.AsyncClient, machine: ScriptedMachine
) -> asyncio.Task[httpx.Response]:
    """Send a request that waits, and return once it does."""
    if kind == "events":
        cursor = (await owner.api.get("/api/v1/events")).json()["cursor"]
        path = f"/api/v1/events?after={cursor}&wait=60"
        request = asyncio.create_task(client.get(path))
        assert not (await asyncio.wait({request}, timeout=0.05))[0]
        return request
    path = f"/api/v1/shortcuts/{machine.id}:session:session_1/wait?timeout=60"
    request = asyncio.create_task(client.get(path))
    taken = await machine.takes("read_turn")
    if kind == "wait":
        await machine.answers(taken, GENERATING)
    return request


async def assert_unauthorized(request: asyncio.Task[httpx.Response]) -> None:
    async with asyncio.timeout(TIMEOUT):
        response = await request
    assert_error(response, 401, "AUTH_INVALID")
    assert "www-authenticate" in response.headers


@pytest.mark.parametrize("kind", ["wait", "hanging wait", "events"])
async def test_a_revoked_key_ends_its_requests_only(quick: Owner, kind: str) -> None:
    """Also one whose machine does not answer."""
    machine = await quick.machine()
    key = await quick.site.key(quick.id)
    mine = await begins(kind, quick, quick.site.client(key), machine)
    other = await begins(kind, quick, quick.api, machine)
    known = await api_keys.by_hash(quick.site.database, credentials.digest(key))
    assert known is not None
    await api_keys.revoke(quick.site.database, known.id, 1)
    await assert_unauthorized(mine)
    assert not other.done()
    other.cancel()


@pytest.mark.parametrize("kind", ["wait", "events"])
async def test_the_end_of_a_session_ends_its_requests(quick: Owner, kind: str) -> None:
    machine = await quick.machine()
    page = await dashboard(quick)
    request = await begins(kind, quick, page, machine)
    ended = await (await dashboard(quick)).delete("/api/v1/account/sessions")
    assert ended.status_code == 200
    await assert_unauthorized(request)
