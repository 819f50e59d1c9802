"""Who may read /metrics, and where."""

from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from outrider.service.settings import Settings
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.site import GATEWAY, Site
from tests.rig.waiting import TIMEOUT
from tests.servers.server import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

TOKEN = "t" * 32
PROXIES = "127.0.0.1"


async def get(url: str, path: str = "/metrics", **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as client:
        return await client.get(url + path, headers=names)


class TestOnLoopback:
    async def test_this_machine_may_read_them(self, site: Site) -> None:
        response = await get(site.url)
        assert response.status_code == 200
        assert "\noutrider_build_info{version=" in response.text
        assert "\nprocess_resident_memory_bytes " in response.text

    @pytest.mark.parametrize(
        "header",
        [
            {"X_Forwarded_For": "198.51.100.7"},
            {"X_Forwarded_For": "127.0.0.1"},
            {"Forwarded": "for=198.51.100.7"},
            {"X_Real_IP": "198.51.100.7"},
            {"X_Forwarded_Host": "outrider.example.com"},
            {"X_Forwarded_Proto": "https"},
            {"Via": "1.1 proxy"},
        ],
    )
    async def test_what_a_proxy_forwards_may_not(self, site: Site, header: dict[str, str]) -> None:
        """A proxy on this machine serves strangers."""
        assert_error(await get(site.url, **header), 403)

    async def test_what_a_trusted_proxy_forwards_may_not(self, start_site: StartSite) -> None:
        site = await start_site(trusted_proxies=PROXIES)
        assert_error(await get(site.url, X_Forwarded_For="198.51.100.7"), 403)
        assert (await get(site.url)).status_code == 200

    @pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", ""])
    async def test_a_page_whose_name_resolves_here_may_not(
        self, start_site: StartSite, host: str
    ) -> None:
        """DNS rebinding: its browser is on this machine, and the request comes without a proxy."""
        site = await start_site(public_url="https://outrider.example.com")
        assert_error(await get(site.url, Host=host), 421)
        for own in ("localhost", "127.0.0.1:8400", "outrider.example.com"):
            assert (await get(site.url, Host=own)).status_code == 200

    async def test_with_a_token_any_host_may_be_named(self, start_site: StartSite) -> None:
        site = await start_site(metrics_token=TOKEN)
        named = await get(site.url, Host="metrics.internal", Authorization=f"Bearer {TOKEN}")
        assert named.status_code == 200


class TestElsewhere:
    async def test_they_are_closed_without_a_token(self, start_site: StartSite) -> None:
        site = await start_site(host="0.0.0.0")
        response = await get(site.url)
        assert_error(response, 403)
        assert "OUTRIDER_METRICS_TOKEN" in response.text
        assert (await get(site.url, "/healthz")).status_code == 200
        assert (await get(site.url, "/readyz")).status_code == 200

    async def test_the_token_opens_them_and_no_other(self, start_site: StartSite) -> None:
        site = await start_site(host="0.0.0.0", metrics_token=TOKEN)
        forwarded = {"X_Forwarded_For": "198.51.100.7"}
        right = await get(site.url, Authorization=f"Bearer {TOKEN}", **forwarded)
        assert right.status_code == 200
        for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[1:]}", f"Basic {TOKEN}", "Bearer", ""):
            response = await get(site.url, Authorization=wrong)
            assert_error(response, 401, "AUTH_REQUIRED")
            assert response.headers["www-authenticate"] == "Bearer"
        owner = await site.account()
        assert_error(await owner.api.get("/metrics"), 401, "AUTH_REQUIRED")
        twice = [("Authorization", f"Bearer {TOKEN}")] * 2
        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as client:
            response = await client.get(f"{site.url}/metrics", headers=twice)
        assert_error(response, 401, "AUTH_REQUIRED")


class TestOwnAddress:
    async def test_they_are_served_there_and_nothing_else_is(self, start_site: StartSite) -> None:
        port = free_port()
        site = await start_site(
            host="0.0.0.0", metrics_listen=f"127.0.0.1:{port}", base_path="/outrider"
        )
        owner = await site.account()
        own = f"http://127.0.0.1:{port}"
        assert (await get(own)).status_code == 200
        assert_error(await get(own, Host="evil.example"), 421)
        assert (await get(own, "/readyz")).status_code == 200
        key = {"Authorization": f"Bearer {owner.key}"}
        for path in ("/outrider/api/v1/daemons", "/outrider/docs", "/outrider/", "/"):
            assert_error(await get(own, path, **key), 404)
        token = (await owner.enrolls()).token
        with pytest.raises(InvalidStatus) as caught:
            await connect(
                f"ws://127.0.0.1:{port}/outrider{GATEWAY}",
                additional_headers={"Authorization": f"Bearer {token}"},
                proxy=None,
            )
        assert caught.value.response.status_code == 404

        root = site.url.removesuffix("/outrider")
        assert_error(await get(root), 404)
        assert_error(await get(site.url), 404)
        assert (await get(site.url, "/api/v1/daemons", **key)).status_code == 200

    async def test_the_token_is_needed_there_too(self, start_site: StartSite) -> None:
        port = free_port()
        await start_site(metrics_listen=f"127.0.0.1:{port}", metrics_token=TOKEN)
        own = f"http://127.0.0.1:{port}"
        assert_error(await get(own), 401, "AUTH_REQUIRED")
        assert (await get(own, Authorization=f"Bearer {TOKEN}")).status_code == 200

    @pytest.mark.parametrize(
        "wrong", ["9464", ":9464", "127.0.0.1", "127.0.0.1:0", "::1:9464", "h:99999", "h:1:2", "h:"]
    )
    async def test_what_is_no_address_is_refused(self, wrong: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1:9464"):
            Settings(metrics_listen=wrong)

    async def test_it_has_a_port_of_its_own(self) -> None:
        assert Settings(metrics_listen="[::1]:9464").metrics_address == ("::1", 9464)
        with pytest.raises(ValueError, match="another one than OUTRIDER_PORT"):
            Settings(port=9000, metrics_listen="127.0.0.1:9000")


@pytest.mark.parametrize("wrong", ["short", "with spaces in between it", "ü" * 20])
async def test_a_weak_token_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="16 characters"):
        Settings(metrics_token=wrong)
