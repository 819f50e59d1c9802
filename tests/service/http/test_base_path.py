"""A service below a path. Holds OUTRIDER_BASE_PATH of docs/settings.md."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from outrider.service.settings import Settings
from tests.conftest import running, settings
from tests.rig.errors import assert_error
from tests.rig.mcp import ACCEPT, mcp_client
from tests.rig.people import PASSWORD, login, person
from tests.rig.site import Site
from tests.rig.stores import SQLite

pytestmark = pytest.mark.asyncio(loop_scope="session")

BASE = "/outrider"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def below(sqlite: SQLite, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    chosen = settings(tmp_path_factory.mktemp("below") / "data", sqlite, base_path=f"{BASE}/")
    async with running(chosen) as site:
        yield site


async def get(site: Site, path: str) -> httpx.Response:
    """Ask for a path of the origin, which need not be below the base path."""
    origin = urlsplit(site.url)
    return await site.client().get(f"{origin.scheme}://{origin.netloc}{path}")


async def test_a_machine_and_its_user_work_below_the_path(below: Site) -> None:
    assert urlsplit(below.url).path == BASE
    async with below.visit():
        owner = await below.account()
        machine = await owner.machine()
        (shown,) = (await owner.api.get("/api/v1/daemons")).json()["daemons"]
        assert shown["id"] == machine.id


@pytest.mark.parametrize("path", ["/", "/api/v1/daemons", "/docs", "/outriders/docs", "//outrider"])
async def test_nothing_is_served_elsewhere(below: Site, path: str) -> None:
    error = assert_error(await get(below, path), 404)["error"]
    assert f"{BASE}/" in error


async def test_a_socket_elsewhere_is_refused(below: Site) -> None:
    elsewhere = below.gateway.replace(BASE, "")
    with pytest.raises(InvalidStatus) as caught:
        await connect(elsewhere, proxy=None)
    assert caught.value.response.status_code == 404


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_health_and_metrics_answer_with_and_without_it(below: Site, path: str) -> None:
    assert (await get(below, path)).status_code == 200
    assert (await get(below, BASE + path)).status_code == 200


@pytest.mark.parametrize("path", ["", "/", "/device", "/password", "/docs"])
async def test_pages_lead_to_addresses_below_it(below: Site, path: str) -> None:
    page = await get(below, BASE + path)
    assert page.status_code == 200
    for link in re.findall(r"(?:href=|fetch\(')([^#'> ]+)", page.text):
        assert urlsplit(urljoin(f"{below.url}/page", link)).path.startswith(f"{BASE}/"), link


async def test_the_description_names_it(below: Site) -> None:
    document = (await get(below, f"{BASE}/openapi.json")).json()
    assert document["servers"][0]["url"] == BASE


async def test_the_cookie_is_only_sent_there(below: Site) -> None:
    async with below.visit():
        user = await person(below)
        response = await login(below, user.email, PASSWORD)
        assert f"; Path={BASE};" in response.headers["set-cookie"]


async def test_a_device_is_approved_below_it(below: Site) -> None:
    machine = {"hostname": "workshop", "platform": "linux", "version": "1.0.0"}
    response = await below.client().post("/api/v1/auth/device", json=machine)
    assert response.json()["verificationUri"] == f"{below.url}/device"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ""),
        ("/", ""),
        ("/outrider", "/outrider"),
        ("/a/b_c/", "/a/b_c"),
    ],
)
async def test_its_normal_form(tmp_path: Path, value: str, expected: str) -> None:
    chosen = Settings(data_dir=tmp_path, base_path=value)
    assert chosen.base_path == expected
    assert chosen.base_url == f"http://127.0.0.1:8400{expected}"


async def test_mcp_and_its_metadata(below: Site) -> None:
    async with below.visit():
        owner = await below.account()
        async with mcp_client(below.url, owner.key) as client:
            assert (await client.list_tools()).tools
        refused = await below.client().post("/mcp", json={}, headers=ACCEPT)
        (metadata,) = re.findall('resource_metadata="(.+)"', refused.headers["WWW-Authenticate"])
        assert metadata.startswith(f"{below.url}/")
        assert (await below.client().get(metadata)).json()["resource"] == f"{below.url}/mcp"
