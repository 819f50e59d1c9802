"""The pages: the start, and letting a machine in."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from starlette.applications import Starlette

from outrider.service.accounts import pages
from outrider.service.http import docs, openapi
from tests.conftest import StartSite
from tests.rig.site import Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


@pytest.fixture
async def without_dashboard(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the pages of a service whose dashboard is not built."""
    transport = httpx.ASGITransport(Starlette(routes=[*pages.routes(tmp_path)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://outrider") as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/device", "/device?code=BCDF-GHJK", "/password"])
async def test_a_page_loads_nothing_but_what_it_brings(
    without_dashboard: httpx.AsyncClient, path: str
) -> None:
    response = await without_dashboard.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    for text in re.findall(r"<(?:script|style)>(.*?)</", response.text, re.DOTALL):
        allowed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{allowed}'" in policy


async def test_the_code_of_the_address_is_not_written_into_the_page(
    site: Site, without_dashboard: httpx.AsyncClient
) -> None:
    for client in (site.client(), without_dashboard):
        response = await client.get("/device?code=<script>alert(1)</script>")
        assert response.status_code == 200
        assert "alert" not in response.text


@pytest.mark.one_store
@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_the_description_is_made_once(
    start_site: StartSite, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may ask for it, and to make it takes milliseconds."""
    spies = [Mock(wraps=docs.page), Mock(wraps=openapi.describe)]
    monkeypatch.setattr(docs, "page", spies[0])
    monkeypatch.setattr(openapi, "describe", spies[1])
    client = (await start_site()).client()
    first, second = await client.get(path), await client.get(path)
    assert first.status_code == 200
    assert first.content == second.content
    assert [spy.call_count for spy in spies] == [int(path == "/docs"), 1]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *[("/", 200), ("/login", 200), ("/password", 200), ("/docs", 200), ("/openapi.json", 200)],
        *[("/healthz", 200), ("/metrics", 200), ("/nowhere", 404), ("/api/v1/daemons", 401)],
        ("/api/v1/nowhere", 404),
    ],
)
async def test_no_response_is_sniffed_or_named_to_others(
    site: Site, path: str, status: int
) -> None:
    response = await site.client().get(path)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


async def test_nor_is_a_refusal_before_the_application(site: Site) -> None:
    refused = await site.client().get("/", headers={"Host": "evil.example"})
    assert (refused.status_code, refused.headers["x-content-type-options"]) == (421, "nosniff")
