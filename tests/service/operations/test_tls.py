"""A service with a certificate of its own."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from outrider.service.operations.tls import CertificateError, ServerCertificate
from outrider.service.settings import Settings
from tests.conftest import running, settings
from tests.rig.certificates import Authority
from tests.rig.people import PASSWORD, person
from tests.rig.site import Site
from tests.rig.stores import SQLite
from tests.rig.waiting import TIMEOUT


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority of the test's own."""
    return Authority(tmp_path)


@pytest_asyncio.fixture(loop_scope="session")
async def served(
    authority: Authority, sqlite: SQLite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    """A service with https; this process trusts its authority, as OpenSSL's variable says."""
    chain, key, _ = authority.issue()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    chosen = settings(tmp_path / "data", sqlite, tls_cert=chain, tls_key=key)
    async with running(chosen) as site, site.visit():
        yield site


class Connection:
    """A TLS connection to a service, which stays open."""

    def __init__(self, site: Site, authority: Authority) -> None:
        self._port = int(site.url.rpartition(":")[2])
        self._context = authority.context

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context
        )
        tls: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        certificate = tls.getpeercert()
        assert certificate is not None
        self.serial_number = int(str(certificate["serialNumber"]), 16)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def status(self) -> int:
        """Send a request; return the status of its response."""
        self._writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(TIMEOUT):
            head = await self._reader.readuntil(b"\r\n\r\n")
            await self._reader.readuntil(b"}")
        return int(head.split()[1])


@pytest.mark.asyncio(loop_scope="session")
class TestService:
    async def test_a_client_verifies_it(self, served: Site, authority: Authority) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=authority.context) as client:
            assert (await client.get(f"{served.url}/healthz")).status_code == 200
        async with httpx.AsyncClient(trust_env=False) as stranger:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await stranger.get(f"{served.url}/healthz")

    async def test_without_tls_it_answers_nothing(self, served: Site, authority: Authority) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(served.url.replace("https", "http") + "/healthz")

    async def test_the_session_cookie_is_secure(self, served: Site) -> None:
        user = await person(served)
        body = {"email": user.email, "password": PASSWORD}
        answer = await served.client().post("/api/v1/auth/login", json=body)
        assert "; Secure" in answer.headers["set-cookie"]

    async def test_browsers_are_told_to_use_https_for_its_name(self, served: Site) -> None:
        """But not for the names of this machine, where other programs serve http at other ports."""
        named = await served.client().get("/login", headers={"Host": "outrider.example.com"})
        assert named.headers["strict-transport-security"] == "max-age=15552000"
        for local in ("localhost:8400", "127.0.0.1"):
            own = await served.client().get("/login", headers={"Host": local})
            assert "strict-transport-security" not in own.headers

    async def test_a_new_certificate_drops_no_connection(
        self, served: Site, authority: Authority
    ) -> None:
        machine = await (await served.account()).machine()
        async with Connection(served, authority) as old:
            _, _, number = authority.issue()
            served.reload_certificate()
            async with Connection(served, authority) as new:
                assert new.serial_number == number
                assert old.serial_number != number
                assert await new.status() == 200
            assert await old.status() == 200
        assert machine.is_open

    async def test_what_cannot_be_used_does_not_replace_it(
        self, served: Site, authority: Authority
    ) -> None:
        assert served.settings.tls_key is not None
        async with Connection(served, authority) as before:
            served.settings.tls_key.write_text("half a file")
            with capture_logs() as logs:
                served.reload_certificate()
            async with Connection(served, authority) as after:
                assert after.serial_number == before.serial_number
        assert [(log["event"], log["log_level"]) for log in logs] == [
            ("certificate not reloaded, previous one still in use", "error")
        ]

    async def test_it_stops_while_clients_are_connected(
        self, served: Site, authority: Authority
    ) -> None:
        async with Connection(served, authority) as idle:
            assert await idle.status() == 200
            async with asyncio.timeout(TIMEOUT):
                await served.stop()


class TestFiles:
    def test_the_key_may_be_in_the_same_file(self, authority: Authority, tmp_path: Path) -> None:
        chain, key, _ = authority.issue()
        both = tmp_path / "both.pem"
        both.write_bytes(chain.read_bytes() + key.read_bytes())
        certificate = ServerCertificate.of(Settings(tls_cert=both))
        assert certificate is not None
        assert certificate.context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert ServerCertificate.of(Settings()) is None

    @pytest.mark.parametrize(
        ("chain", "key", "why"),
        [
            ("server.pem", "other.key", "server.pem .*key values mismatch"),
            ("server.key", "server.key", "must be PEM files"),
            ("server.pem", "locked.key", "without a password"),
            ("server.pem", "missing.key", "missing.key cannot be read: No such file"),
            ("missing.pem", "server.key", "missing.pem cannot be read: No such file"),
        ],
    )
    def test_files_that_cannot_be_used_are_named(
        self, authority: Authority, tmp_path: Path, chain: str, key: str, why: str
    ) -> None:
        authority.issue()
        authority.issue("other")
        authority.issue("locked", password=b"secret")
        with pytest.raises(CertificateError, match=why):
            ServerCertificate(tmp_path / chain, tmp_path / key)
