"""An account that the operator deletes is gone on every node (docs/access.md, Accounts)."""

import time
from functools import partial

import httpx
import pytest

from outrider.contract.frames import CloseCode
from outrider.service.accounts.store import accounts
from tests.rig.people import login
from tests.rig.samples import session
from tests.rig.waiting import eventually
from tests.system.nodes.pair import V1, Pair

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_machine_key_and_session_end_on_both(pair: Pair) -> None:
    machine = await pair.machine_there(session(id="s1"))
    await pair.shows_here(1)
    token = (await login(pair.other, pair.owner.email)).json()["token"]
    clients = (pair.here, pair.there, pair.other.client(token))
    for client in clients:
        assert len((await client.get(f"{V1}/daemons")).json()["daemons"]) == 1
    await accounts.remove(pair.owner.site.database, pair.owner.id, time.time_ns() // 1_000_000)
    assert (await machine.closed())[0] == CloseCode.UNAUTHORIZED
    for client in clients:
        await eventually(partial(_is_refused, client))


async def _is_refused(client: httpx.AsyncClient) -> bool:
    return (await client.get(f"{V1}/daemons")).status_code == 401
