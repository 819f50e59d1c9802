"""The link of `outrider up` that logs in to the dashboard."""

import asyncio
from collections import Counter

import httpx
import pytest

from outrider.service.accounts.one_time_links import LINK_SECONDS, LoginLinks
from outrider.service.http.client_address import is_loopback
from outrider.service.http.session_cookie import COOKIE
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import PAGE_SECRET, V1, page_of
from tests.rig.site import Owner

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


class TestLinks:
    async def test_it_works_once(self) -> None:
        links = LoginLinks()
        token = links.issue("ada@example.org")
        assert links.take(token + "x") is None
        assert links.take(token) == "ada@example.org"
        assert links.take(token) is None

    async def test_it_expires(self) -> None:
        clock = Clock()
        links = LoginLinks(clock)
        early, late = links.issue("ada@example.org"), links.issue("ada@example.org")
        clock.now += LINK_SECONDS - 1
        assert links.take(early) is not None
        clock.now += 1
        assert links.take(late) is None

    async def test_the_oldest_of_too_many_ends(self) -> None:
        links = LoginLinks()
        tokens = [links.issue("ada@example.org") for _ in range(20)]
        assert [links.take(token) is not None for token in tokens] == [False] * 4 + [True] * 16


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("203.0.113.5", False),
        ("fe80::1", False),
        ("", False),
        ("localhost.example", False),
    ],
)
async def test_what_is_loopback(address: str, own: bool) -> None:
    assert is_loopback(address) is own


async def _take(user: Owner, token: str, **headers: str) -> httpx.Response:
    client = user.site.client()
    return await client.post(f"{V1}/auth/link", json={"token": token}, headers=headers)


async def test_it_begins_an_ordinary_session(user: Owner) -> None:
    token = user.site.links.issue(user.email)
    response = await _take(user, token, **{"X-Outrider-Page-Secret": PAGE_SECRET})
    assert response.status_code == 200, response.text
    (cookie,) = response.headers.get_list("set-cookie")
    assert cookie.startswith(f"{COOKIE}=eyJ")
    assert "; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict" in cookie
    browser = user.site.client()
    browser.headers.update(page_of(cookie.partition(";")[0].partition("=")[2]))
    records = (await browser.get(f"{V1}/audit")).json()["records"]
    assert [record["action"] for record in records] == ["take_link"]
    assert token not in str(records)
    # A login is a recent one.
    url = {"url": "http://127.0.0.1:9/hook", "events": ["*"]}
    own = {"Sec-Fetch-Site": "same-origin"}
    assert (await browser.post(f"{V1}/webhooks", json=url, headers=own)).status_code == 201


async def test_one_of_many_at_once_wins(user: Owner) -> None:
    token = user.site.links.issue(user.email)
    answers = await asyncio.gather(*(_take(user, token) for _ in range(8)))
    assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 7}


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-IP"],
)
async def test_it_does_not_work_through_a_proxy(user: Owner, header: str) -> None:
    """A proxy on this machine has a loopback address, whoever is behind it."""
    token = user.site.links.issue(user.email)
    refused = await _take(user, token, **{header: "203.0.113.5"})
    assert_error(refused, 403, "AUTH_FORBIDDEN")
    assert "set-cookie" not in refused.headers
    assert (await _take(user, token)).status_code == 200, "a refusal does not use it up"


async def test_one_that_does_not_work(user: Owner) -> None:
    assert_error(await _take(user, "x"), 401, "AUTH_INVALID")
    assert_error(
        await _take(user, user.site.links.issue("nobody@example.org")), 401, "AUTH_INVALID"
    )
