"""How a machine joins with a one-time code. Holds docs/access.md, "Connecting machines"."""

from typing import Any

import pytest

from outrider.service.accounts.enrollment import Enrollment
from tests.rig.errors import assert_error, paths
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.site import Owner, Site

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATH = "/api/v1/auth/enroll"
MACHINE = {"hostname": "bench", "platform": "linux", "version": "1"}


async def code_for(owner: Owner, nickname: str | None = None) -> str:
    """Return a one-time code of the account."""
    return (await Enrollment(owner.site.database).new_code(owner.id, nickname)).code


async def enroll(owner: Owner, **fields: Any) -> Any:
    """Enroll a machine with a fresh code; return what it is given."""
    body = MACHINE | {"code": await code_for(owner)} | fields
    response = await owner.site.client().post(PATH, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_code_is_exchanged_for_a_token(owner: Owner) -> None:
    given = await enroll(owner)
    assert given.keys() == {"daemonId", "token", "nickname"}
    assert given["daemonId"].startswith("machine_")
    assert given["token"].startswith("omt_")
    shown = await owner.api.get(f"/api/v1/daemons/{given['daemonId']}/status")
    assert (shown.json()["hostname"], shown.json()["connected"]) == ("bench", False)


@pytest.mark.parametrize(
    ("of_the_code", "of_the_machine", "nickname"),
    [(None, None, "bench"), ("Desk", None, "Desk"), ("Desk", "Mine", "Mine")],
)
async def test_nickname(
    owner: Owner, of_the_code: str | None, of_the_machine: str | None, nickname: str
) -> None:
    """The machine's own word counts more than the code's, and that more than the host name."""
    code = await code_for(owner, of_the_code)
    assert (await enroll(owner, code=code, nickname=of_the_machine))["nickname"] == nickname


async def test_a_code_works_once_however_it_is_typed(owner: Owner, site: Site) -> None:
    code = await code_for(owner)
    await enroll(owner, code=f" {code.lower().replace('-', ' ')} ")
    response = await site.client().post(PATH, json=MACHINE | {"code": code})
    assert paths(response) == ["code"]


async def test_a_code_expires(owner: Owner, site: Site) -> None:
    """docs/access.md, Connecting machines: ten minutes."""
    an_hour_ago = Enrollment(site.database, clock=lambda: 1_000_000.0)
    code = (await an_hour_ago.new_code(owner.id, None)).code
    response = await site.client().post(PATH, json=MACHINE | {"code": code})
    assert paths(response) == ["code"]


async def test_enrolling_again_keeps_the_id_and_replaces_the_token(owner: Owner) -> None:
    first = await enroll(owner, nickname="Old")
    second = await enroll(owner, daemonId=first["daemonId"])
    assert second["daemonId"] == first["daemonId"]
    assert second["token"] != first["token"]
    assert second["nickname"] == "Old"
    unnamed = await enroll(owner, daemonId=first["daemonId"], code=await code_for(owner, ""))
    assert unnamed["nickname"] == "Old"
    assert (await enroll(owner, daemonId=first["daemonId"], nickname="New"))["nickname"] == "New"


async def test_enrolling_again_closes_the_socket_of_the_old_token(owner: Owner, site: Site) -> None:
    first = await enroll(owner)
    async with ScriptedMachine(site.gateway, first["token"], hello()) as machine:
        await enroll(owner, daemonId=first["daemonId"])
        assert (await machine.closed())[0] == 4401


async def test_another_accounts_id_is_not_taken_over(owner: Owner, site: Site) -> None:
    """A machine that brings somebody else's id gets an id of its own."""
    theirs = await enroll(await site.account())
    mine = await enroll(owner, daemonId=theirs["daemonId"])
    assert mine["daemonId"] != theirs["daemonId"]
    response = await owner.api.get(f"/api/v1/daemons/{theirs['daemonId']}/status")
    assert_error(response, 404)


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("change", "blamed"),
    [
        ({"code": None}, "code"),
        ({"code": "nonsense"}, "code"),
        ({"code": ""}, "code"),
        ({"code": 5}, "code"),
        ({"hostname": ""}, "hostname"),
        ({"hostname": None}, "hostname"),
        ({"hostname": "x" * 257}, "hostname"),
        ({"platform": 5}, "platform"),
        ({"nickname": []}, "nickname"),
    ],
)
async def test_bad_bodies(owner: Owner, site: Site, change: dict[str, Any], blamed: str) -> None:
    body = MACHINE | {"code": await code_for(owner)} | change
    assert paths(await site.client().post(PATH, json=body)) == [blamed]
