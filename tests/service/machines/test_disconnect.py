"""Disconnect and revoke, which only a recent login may do."""

import httpx
import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from outrider.contract.enrollment import Enrolled
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine, closing, socket
from tests.rig.people import dashboard, person
from tests.rig.site import Owner, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")


class ConnectedMachine:
    """A connected machine, its owner, and the owner's dashboard."""

    def __init__(
        self, owner: Owner, enrolled: Enrolled, machine: ScriptedMachine, api: httpx.AsyncClient
    ) -> None:
        self.owner = owner
        self.enrolled = enrolled
        self.machine = machine
        self.api = api
        self.path = f"/api/v1/daemons/{enrolled.daemon_id}"
        self.status = f"/api/v1/shortcuts/{enrolled.daemon_id}:cli:x/status"

    async def assert_offline(self) -> None:
        """The machine is offline at once: no grace period."""
        assert (await self.api.get("/api/v1/daemons")).json() == {"daemons": []}
        assert (await self.api.get(f"{self.path}/status")).json()["connected"] is False
        assert_error(await self.api.get(self.status), 500)


@pytest_asyncio.fixture(loop_scope="session")
async def connected(site: Site, owner: Owner) -> ConnectedMachine:
    theirs = await person(site)
    enrolled = await theirs.enrolls()
    machine = await theirs.machine(enrolled=enrolled)
    return ConnectedMachine(theirs, enrolled, machine, await dashboard(theirs))


async def test_disconnect(connected: ConnectedMachine) -> None:
    """Disconnected at once; the daemon may reconnect by itself (Close codes of the protocol)."""
    request = connected.owner.sends("GET", connected.status)
    await connected.machine.takes("agent_status")
    response = await connected.api.post(f"{connected.path}/disconnect")
    assert (response.status_code, response.json()["success"]) == (200, True)
    assert (await connected.machine.closed())[0] == 4403
    assert_error(await request, 503)
    await connected.assert_offline()
    again = (await connected.owner.machine(enrolled=connected.enrolled)).obliges()
    assert again.id == connected.enrolled.daemon_id
    assert (await connected.api.get(connected.status)).status_code == 200


async def test_revoke(connected: ConnectedMachine, site: Site) -> None:
    """docs/access.md: the token is revoked for good; setup must be run again."""
    response = await connected.api.post(f"{connected.path}/revoke")
    assert (response.status_code, response.json()["success"]) == (200, True)
    code, reason = await connected.machine.closed()
    assert code == 4401
    assert "outrider setup" in reason
    await connected.assert_offline()
    async with socket(site.gateway, connected.enrolled.token) as connection:
        with pytest.raises(ConnectionClosed) as end:
            await connection.recv()
    assert closing(end.value)[0] == 4401
    anew = await connected.owner.enrolls(daemon_id=connected.enrolled.daemon_id)
    assert (await connected.owner.machine(enrolled=anew)).id == connected.enrolled.daemon_id


@pytest.mark.parametrize("action", ["disconnect", "revoke"])
class TestRefused:
    async def test_of_a_machine_that_is_offline(
        self, connected: ConnectedMachine, action: str
    ) -> None:
        """It is done all the same: the token of an offline machine can be revoked."""
        asleep = await connected.owner.enrolls()
        response = await connected.api.post(f"/api/v1/daemons/{asleep.daemon_id}/{action}")
        assert response.status_code == 200

    async def test_of_another_account(
        self, connected: ConnectedMachine, owner: Owner, action: str
    ) -> None:
        """docs/access.md: another account's machine is a 404, and stays as it was."""
        theirs = (await owner.machine()).obliges()
        assert_error(await connected.api.post(f"/api/v1/daemons/{theirs.id}/{action}"), 404)
        assert_error(await connected.api.post(f"/api/v1/daemons/machine_x/{action}"), 404)
        path = f"/api/v1/shortcuts/{theirs.id}:cli:x/status"
        assert (await owner.api.get(path)).status_code == 200

    async def test_with_a_key(self, connected: ConnectedMachine, action: str) -> None:
        """docs/access.md, Sessions: the login must be recent."""
        response = await connected.owner.api.post(f"{connected.path}/{action}")
        assert_error(response, 403, "RECENT_LOGIN_REQUIRED")
        connected.machine.obliges()
        assert (await connected.api.get(connected.status)).status_code == 200
