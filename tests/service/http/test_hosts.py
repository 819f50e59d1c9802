"""Which hosts a request may name. Holds OUTRIDER_ALLOWED_HOSTS of docs/settings.md."""

import asyncio
from urllib.parse import urlsplit

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from outrider.service.http.hosts import host_name
from outrider.service.settings import Settings
from tests.conftest import StartSite
from tests.rig.errors import assert_error
from tests.rig.site import Owner, Site
from tests.rig.waiting import TIMEOUT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

OWN = ["127.0.0.1", "127.1.2.3:80", "localhost", "LocalHost.:9", "app.localhost", "[::1]:8400"]
FOREIGN = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "evil.example:8400",
    "0.0.0.0",
    "169.254.169.254",
    "10.0.0.5",
    "evil.example#localhost",
    "localhost@evil.example",
    "evil.example@localhost",
    "localhost, evil.example",
    "local host",
    "[::1",
    "::1",
    ":8400",
    "",
]


async def get(site: Site, host: str, path: str = "/api/v1/daemons") -> httpx.Response:
    """Ask for a path with this `Host`."""
    return await site.client().get(path, headers={"Host": host})


async def raw(site: Site, *lines: str) -> bytes:
    """Send the lines of a head; return the first line of the answer."""
    address = urlsplit(site.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(TIMEOUT):
        line = await reader.readline()
    writer.close()
    return line


class TestOnLoopback:
    @pytest.mark.parametrize("host", OWN)
    async def test_loopback_names_and_addresses_are_served(self, site: Site, host: str) -> None:
        assert_error(await get(site, host), 401, "AUTH_REQUIRED")

    @pytest.mark.parametrize("host", FOREIGN)
    @pytest.mark.parametrize("path", ["/api/v1/daemons", "/", "/docs", "/nowhere"])
    async def test_other_hosts_get_a_421(self, site: Site, host: str, path: str) -> None:
        assert_error(await get(site, host, path), 421)

    async def test_another_host_gets_a_421_with_a_credential_too(self, owner: Owner) -> None:
        response = await owner.api.get("/api/v1/daemons", headers={"Host": "evil.example"})
        assert_error(response, 421)

    @pytest.mark.parametrize("path", ["/healthz", "/readyz"])
    async def test_health_checks_answer_any_host(self, site: Site, path: str) -> None:
        assert (await get(site, "evil.example", path)).status_code == 200

    async def test_a_request_names_one_host(self, site: Site) -> None:
        path = "GET /api/v1/daemons HTTP/1.1"
        assert b" 401 " in await raw(site, path, "Host: localhost")
        assert b" 421 " in await raw(site, path)
        assert b" 421 " in await raw(site, path, "Host: localhost", "Host: evil.example")
        assert b" 421 " in await raw(site, path, "Host: localhost", "Host: localhost")

    async def test_a_forwarded_host_changes_nothing(self, site: Site) -> None:
        path = "GET /api/v1/daemons HTTP/1.1"
        forwarded = "X-Forwarded-Host: localhost"
        assert b" 421 " in await raw(site, path, "Host: evil.example", forwarded)

    async def test_a_machine_s_websocket_to_another_host_is_refused(
        self, owner: Owner, site: Site
    ) -> None:
        token = (await owner.enrolls()).token
        headers = {"Authorization": f"Bearer {token}", "Host": "evil.example"}
        with pytest.raises(InvalidStatus) as caught:
            await connect(site.gateway, additional_headers=headers, proxy=None)
        response = caught.value.response
        assert response.status_code == 421
        assert response.headers["x-request-id"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert b"OUTRIDER_ALLOWED_HOSTS" in response.body


class TestNames:
    async def test_the_public_url_and_the_allowed_hosts_are_served(
        self, start_site: StartSite
    ) -> None:
        site = await start_site(
            public_url="https://Outrider.example.com", allowed_hosts="inside:8400, 10.0.0.5"
        )
        for host in ("outrider.example.com", "outrider.example.com:443", "inside", "10.0.0.5:1"):
            assert (await get(site, host)).status_code == 401, host
        for host in ("localhost", "127.0.0.1"):
            assert (await get(site, host)).status_code == 401, host
        for host in ("evil.example", "www.outrider.example.com", "example.com"):
            assert (await get(site, host)).status_code == 421, host

    async def test_elsewhere_every_host_is_served_until_one_is_named(
        self, start_site: StartSite
    ) -> None:
        with capture_logs() as logs:
            site = await start_site(host="0.0.0.0")
        assert (await get(site, "evil.example")).status_code == 401
        assert [log["log_level"] for log in logs if log["event"] == "host names not checked"] == [
            "warning"
        ]
        with capture_logs() as logs:
            named = await start_site(host="0.0.0.0", allowed_hosts="outrider.internal")
        assert (await get(named, "outrider.internal")).status_code == 401
        assert (await get(named, "evil.example")).status_code == 421
        assert not [log for log in logs if log["event"] == "host names not checked"]

    @pytest.mark.parametrize(
        "wrong", ["https://outrider.example.com", "*", "*.example.com", "a b", "host/path", "a,:80"]
    )
    async def test_a_setting_that_is_no_host_name_is_refused(self, wrong: str) -> None:
        with pytest.raises(ValueError, match="host names such as"):
            Settings(allowed_hosts=wrong)  # type: ignore[arg-type]

    async def test_names_have_one_form(self) -> None:
        settings = Settings(allowed_hosts="A.Example., [2001:DB8::1]:80")  # type: ignore[arg-type]
        assert settings.allowed_hosts == ["a.example", "2001:db8::1"]
        assert host_name("[2001:db8::1]") == "2001:db8::1"
