"""The Content-Security-Policy of every HTML answer, and that nothing else is served."""

from typing import Final

import pytest
from playwright.async_api import Browser, expect

from outrider.service.http import dashboard
from tests.dashboard.accounts import furnished_account
from tests.dashboard.browser_client import signed_in
from tests.dashboard.conftest import MARKS
from tests.dashboard.names import ROUTES, address
from tests.rig.site import Owner, Site

pytestmark = MARKS

_IDS: Final = {"daemonId": "m", "targetId": "m:session:s", "webhookId": "w"}


@pytest.mark.parametrize("path", [*dashboard.PATHS, "/docs", "/password"])
async def test_each_page_has_a_strict_policy(site: Site, built: None, path: str) -> None:
    response = await site.client().get(path.format(**_IDS))
    assert response.headers["content-type"].startswith("text/html")
    policy = {
        name: set(values)
        for name, *values in map(str.split, response.headers["content-security-policy"].split(";"))
    }
    for name in ("default-src", "base-uri", "frame-ancestors"):
        assert policy[name] <= {"'self'", "'none'"}, name
    assert policy["object-src"] == {"'none'"}
    everything = set().union(*policy.values())
    assert not everything & {"*", "ws:", "wss:", "http:", "https:", "'unsafe-eval'"}
    assert "'unsafe-inline'" not in set().union(
        *(values for name, values in policy.items() if name != "style-src")
    )


async def test_what_is_not_there(site: Site, built: None) -> None:
    client = site.client()
    assert (await client.get("/assets/nothing-1a2b.js")).status_code == 404
    unknown = await client.get("/api/v1/nothing")
    assert unknown.status_code == 404
    assert unknown.json()["error"]


async def test_what_a_page_loads(user: Owner, browser: Browser) -> None:
    """Compressed, cacheable, at most 204,800 bytes at first; the terminal only when opened."""
    account = await furnished_account(user)
    async with signed_in(browser, user) as browsing:
        loaded: dict[str, int] = {}

        async def count(request: object) -> None:
            url: str = request.url  # type: ignore[attr-defined]
            if "/assets/" in url:
                sizes = await request.sizes()  # type: ignore[attr-defined]
                loaded[url] = sizes["responseBodySize"]

        browsing.context.on("requestfinished", count)
        await browsing.page.goto("/")
        await expect(browsing.page.get_by_role("link", name="Fix the build")).to_be_visible()
        assert 0 < sum(loaded.values()) <= 204_800
        for route in ROUTES:
            await browsing.page.goto(address(route, account))
            await expect(browsing.page.get_by_role("heading", level=1)).to_be_visible()
        assert not [url for url in loaded if "xterm" in url or "terminal" in url]
