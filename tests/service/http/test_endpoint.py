"""Rate limits and scopes that a row of the endpoint table declares, on the tests' own table."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest

from outrider.contract.account import Scope
from outrider.contract.outcomes import Done
from outrider.service.accounts.rate_limits import RateLimit, RateLimits
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import Call, Endpoint, EndpointLimit, Who, bind
from outrider.service.http.openapi import describe
from tests.conftest import StartSite, early_in_a_window
from tests.rig.errors import assert_error
from tests.rig.people import dashboard, person
from tests.rig.site import Owner

pytestmark = pytest.mark.asyncio(loop_scope="session")

V1 = "/api/v1"
BY_ACCOUNT = EndpointLimit(name="export", by="account", requests=3, seconds=3600)
BY_PRINCIPAL = EndpointLimit(name="import", by="principal", requests=2, seconds=3600)
BY_ADDRESS = EndpointLimit(name="contact", by="address", requests=2, seconds=3600)


def endpoint(
    path: str, limit: EndpointLimit, who: Who = "principal", scope: Scope | None = None
) -> Endpoint[Any]:
    async def limited(_services: Any, _call: Call) -> Done:
        """Do nothing."""
        return Done()

    limited.__name__ = path
    return Endpoint(
        method="GET",
        path=f"{V1}/{path}",
        who=who,
        scope=scope,
        summary=path,
        handler=limited,
        response=Done,
        rate_limit=limit,
        tag="Daemons",
    )


TABLE = [
    endpoint("export", BY_ACCOUNT),
    endpoint("export-all", BY_ACCOUNT),
    endpoint("import", BY_PRINCIPAL),
    endpoint("contact", BY_ADDRESS, who="anyone"),
]


async def start(start_site: StartSite) -> Owner:
    await early_in_a_window(BY_ACCOUNT.seconds)
    return await person(await start_site(more_endpoints=bind(TABLE, None)))


def policies(response: httpx.Response) -> set[str]:
    return set(response.headers["ratelimit-policy"].split(", "))


async def test_a_limit_by_account_counts_all_its_credentials(start_site: StartSite) -> None:
    owner = await start(start_site)
    page = await dashboard(owner)
    first = await owner.api.get(f"{V1}/export")
    assert policies(first) == {'"ip";q=1000000;w=60', '"key";q=1000000;w=60', '"export";q=3;w=3600'}
    assert '"export";r=2;' in first.headers["ratelimit"]
    assert (await page.get(f"{V1}/export")).status_code == 200
    assert (await owner.api.get(f"{V1}/export-all")).status_code == 200
    for client in (owner.api, page):
        refused = await client.get(f"{V1}/export")
        assert "this account on this route" in assert_error(refused, 429, "RATE_LIMITED")["error"]
        assert int(refused.headers["retry-after"]) > 0
    assert (await owner.api.get(f"{V1}/daemons")).status_code == 200, "other routes are served"
    other = await person(owner.site)
    assert (await other.api.get(f"{V1}/export")).status_code == 200


@pytest.mark.one_store
async def test_a_limit_by_principal_counts_each_credential(start_site: StartSite) -> None:
    owner = await start(start_site)
    clients = [owner.api, await owner.may("agent:read"), await dashboard(owner)]
    for client in clients:
        answers = await asyncio.gather(*(client.get(f"{V1}/import") for _ in range(5)))
        assert Counter(answer.status_code for answer in answers) == {200: 2, 429: 3}


@pytest.mark.one_store
async def test_a_limit_by_address_needs_no_credential(start_site: StartSite) -> None:
    owner = await start(start_site)
    answers = [await owner.site.client().get(f"{V1}/contact") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert_error(answers[-1], 429, "RATE_LIMITED")


@pytest.mark.one_store
async def test_authentication_comes_before_a_limit_by_account(start_site: StartSite) -> None:
    owner = await start(start_site)
    for _ in range(BY_ACCOUNT.requests or 0):
        await owner.api.get(f"{V1}/export")
    assert_error(await owner.site.client().get(f"{V1}/export"), 401, "AUTH_REQUIRED")


@pytest.mark.one_store
async def test_openapi_says_the_limit() -> None:
    described = describe([*ENDPOINTS, *TABLE])["paths"][f"{V1}/export"]["get"]["description"]
    assert "3 requests in 3600 s by account" in described


@pytest.mark.one_store
async def test_two_limits_of_one_name_are_refused() -> None:
    limits = [RateLimit("export", 1, 60, "this account"), RateLimit("export", 2, 60, "this key")]
    RateLimits(key=1, ip=1, auth=1, others=[limits[0], limits[0]])
    with pytest.raises(ValueError, match="export"):
        RateLimits(key=1, ip=1, auth=1, others=limits)


@pytest.mark.one_store
async def test_a_row_for_anyone_can_only_limit_addresses() -> None:
    with pytest.raises(ValueError, match="addresses"):
        endpoint("export", BY_ACCOUNT, who="anyone")


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("who", "scope"),
    [("scope", None), ("principal", Scope.AGENT_READ), ("anyone", Scope.AGENT_READ)],
)
async def test_a_row_says_once_who_may_call_it(who: Who, scope: Scope | None) -> None:
    """A forgotten scope would open the row to every key."""
    with pytest.raises(ValueError, match="a row has a scope"):
        endpoint("export", BY_ADDRESS, who, scope)


def readable(path: str, **options: Any) -> Endpoint[Any]:
    """Return an endpoint with a `read_scope`."""
    return replace(
        endpoint(path, BY_ACCOUNT, who="scope", scope=Scope.AGENT_CONTROL),
        rate_limit=None,
        read_scope=Scope.AGENT_READ,
        **options,
    )


class TestReadScope:
    async def test_it_suffices_where_nothing_is_changed(self, start_site: StartSite) -> None:
        table = [
            readable("read"),
            readable("read-post", method="POST", reads_only=True),
            readable("write", method="POST", is_read=lambda _body: False),
        ]
        owner = await person(await start_site(more_endpoints=bind(table, None)))
        key = await owner.site.key(owner.id, [Scope.AGENT_READ])
        async with owner.site.client(key) as reader:
            assert (await reader.get(f"{V1}/read")).status_code == 200
            assert (await reader.post(f"{V1}/read-post")).status_code == 200
            assert_error(await reader.post(f"{V1}/write"), 403, "AUTH_FORBIDDEN")

    async def test_a_row_that_changes_something_says_which_requests_only_read(self) -> None:
        with pytest.raises(ValueError, match="is_read"):
            readable("write", method="POST")
