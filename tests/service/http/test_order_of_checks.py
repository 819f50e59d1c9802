"""The order of the checks: where two of them fail, the first one tells.

docs/access.md, Limits: IP limit → authentication → key limit → scope → recent login → monthly
quota → body → ownership (404) → action. One test for each pair of neighbours.
"""

from typing import Final

import pytest

from outrider.service.accounts import credentials
from outrider.service.accounts.store import api_keys, usage
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.people import V1, calls, dashboard, person
from tests.rig.site import Owner, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

RUBBISH: Final = "not JSON"


async def broke(site: Site) -> Owner:
    """Return an account whose month is spent."""
    owner = await person(site, "free")
    month = (await (await dashboard(owner)).get(f"{V1}/account")).json()["usage"]["month"]
    await usage.set_aside(site.database, owner.id, month, None, most=1000)
    return owner


async def test_ip_limit_before_authentication(start_site: StartSite) -> None:
    stranger = (await start_site(rate_limit_ip=1)).client()
    assert_error(await stranger.get(f"{V1}/daemons"), 401, "AUTH_REQUIRED")
    assert_error(await stranger.get(f"{V1}/daemons"), 429, "RATE_LIMITED")


async def test_authentication_before_key_limit(start_site: StartSite) -> None:
    owner = await person(await start_site(rate_limit_key=1))
    assert (await owner.api.get(f"{V1}/daemons")).status_code == 200
    assert_error(await owner.api.get(f"{V1}/daemons"), 429, "RATE_LIMITED")
    known = await api_keys.by_hash(owner.site.database, credentials.digest(owner.key))
    assert known is not None
    ended = await (await dashboard(owner)).delete(f"{V1}/account/keys/{known.id}")
    assert ended.status_code == 200
    assert_error(await owner.api.get(f"{V1}/daemons"), 401, "AUTH_INVALID")


async def test_key_limit_before_scope(start_site: StartSite) -> None:
    owner = await person(await start_site(rate_limit_key=1))
    reader = await owner.may("agent:read")
    assert_error(await reader.get(f"{V1}/daemons"), 403, "AUTH_FORBIDDEN")
    assert_error(await reader.get(f"{V1}/daemons"), 429, "RATE_LIMITED")


async def test_scope_before_recent_login(user: Owner) -> None:
    path = f"{V1}/daemons/machine_x/revoke"
    assert_error(await (await user.may("ide:read")).post(path), 403, "AUTH_FORBIDDEN")
    assert_error(await (await user.may("ide:control")).post(path), 403, "RECENT_LOGIN_REQUIRED")


async def test_recent_login_before_quota(site: Site, user: Owner) -> None:
    owner = await broke(site)
    response = await owner.api.post(f"{V1}/daemons/machine_x/revoke")
    assert_error(response, 403, "RECENT_LOGIN_REQUIRED")


async def test_quota_before_body(site: Site, user: Owner) -> None:
    owner = await broke(site)
    response = await owner.api.post(f"{V1}/daemons/machine_x/command", content=RUBBISH)
    assert_error(response, 429, "API_LIMIT_EXCEEDED")


async def test_body_before_ownership(user: Owner) -> None:
    response = await user.api.post(f"{V1}/daemons/machine_x/command", content=RUBBISH)
    assert_error(response, 400)


async def test_ownership_before_action(site: Site, user: Owner) -> None:
    """A machine of another account is not there, not offline."""
    other = await person(site)
    theirs = (await other.enrolls()).daemon_id
    path = f"{V1}/daemons/{theirs}/terminal"
    assert_error(await user.api.post(path, json={"command": "id"}), 404)
    assert_error(await other.api.post(path, json={"command": "id"}), 500)


@pytest.mark.parametrize("action", ["disconnect", "revoke"])
async def test_recent_login_before_ownership(user: Owner, action: str) -> None:
    """docs/access.md, Sessions: these routes refuse every API key."""
    for machine_id in ("machine_x", (await user.machine()).id):
        response = await user.api.post(f"{V1}/daemons/{machine_id}/{action}")
        assert_error(response, 403, "RECENT_LOGIN_REQUIRED")


async def test_ownership_before_the_type_to_launch(user: Owner) -> None:
    """What can be launched depends on the machine, so an unknown machine comes first."""
    response = await user.api.post(f"{V1}/shortcuts/machine_x/launch", json={"type": "no-such"})
    assert_error(response, 404)


async def test_what_counts_against_the_month(start_site: StartSite) -> None:
    """docs/access.md, Limits: one refused before the quota check does not; only keys' do."""
    owner = await person(await start_site(rate_limit_key=4), "free")
    page, reader = await dashboard(owner), await owner.may("agent:read")
    assert_error(await reader.get(f"{V1}/daemons"), 403, "AUTH_FORBIDDEN")
    assert_error(await owner.api.post(f"{V1}/daemons/x/revoke"), 403, "RECENT_LOGIN_REQUIRED")
    assert (await page.get(f"{V1}/daemons")).status_code == 200
    assert (await page.post(f"{V1}/daemons/x/command", content=RUBBISH)).status_code == 400
    assert await calls(owner) == 0
    assert (await owner.api.get(f"{V1}/daemons")).status_code == 200
    assert (await owner.api.post(f"{V1}/daemons/x/command", content=RUBBISH)).status_code == 400
    assert (await owner.api.get(f"{V1}/daemons/x/status")).status_code == 404
    assert await calls(owner) == 3
    assert_error(await owner.api.get(f"{V1}/daemons"), 429, "RATE_LIMITED")
    assert await calls(owner) == 3
