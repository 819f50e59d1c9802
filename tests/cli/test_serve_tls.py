"""`outrider serve` with a certificate, and machines that verify it, as real processes."""

import asyncio
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.machine.settings import DaemonSettings
from outrider.sdk import AsyncOutrider
from tests.machine.agents.machine import kill_server
from tests.rig.certificates import Authority
from tests.rig.private import private
from tests.rig.processes import Program, Serving, environment, outrider
from tests.rig.waiting import eventually
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]


async def serial_number(port: int, authority: Authority) -> int:
    """Return the number of the certificate that the port shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=authority.context)
    tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = tls.getpeercert()
    writer.transport.abort()
    assert certificate is not None
    return int(str(certificate["serialNumber"]), 16)


async def test_a_machine_and_a_client_verify_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    chain, key, _ = authority.issue()
    async with Serving(tmp_path / "data", tls_cert=str(chain), tls_key=str(key)) as service:
        assert service.url.startswith("https://")
        email = ("--email", "a@example.org", "--password", "correct horse battery")
        account = (await service.admin("account", "create", *email)).json()["accountId"]
        code = (await service.admin("enroll", "--account", account)).json()["code"]
        issued = await service.admin("key", "create", "--account", account, "--name", "k")

        env = environment(tmp_path / "machine" / "data")
        setup = ("setup", "--server", service.url, "--code", code)
        refused = (await outrider(*setup, env=env)).assert_sentence()
        assert "not trusted here" in refused
        assert "SSL_CERT_FILE" in refused
        trusting = env | {"SSL_CERT_FILE": str(authority.file)}
        enrolled = await outrider(*setup, env=trusting)
        assert enrolled.code == 0, enrolled.err

        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        try:
            async with (
                Program("-m", "outrider", "daemon", env=trusting) as daemon,
                AsyncOutrider(base_url=service.url, api_key=issued.json()["key"]) as client,
            ):

                async def is_connected() -> bool:
                    return bool(await client.machines.list())

                await eventually(is_connected)
                daemon.signal(signal.SIGTERM)
                assert await daemon.ends() == 0
        finally:
            kill_server(DaemonSettings(tmp_path / "machine" / "config").tmux_socket)


async def test_a_hangup_reloads_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain, key, number = authority.issue()
    async with Serving(tmp_path / "data", tls_cert=str(chain), tls_key=str(key)) as service:
        assert await serial_number(service.port, authority) == number
        _, _, renewed = authority.issue()
        service.signal(signal.SIGHUP)

        async def is_new() -> bool:
            return await serial_number(service.port, authority) == renewed

        await eventually(is_new)
        service.signal(signal.SIGTERM)
        assert await service.ends() == 0


@pytest.fixture
def stores() -> Iterator[tuple[Postgres, Redis]]:
    """What several workers need."""
    with private(Postgres) as postgres, private(Redis) as redis:
        yield postgres, redis


async def test_a_hangup_reloads_that_of_every_worker(
    stores: tuple[Postgres, Redis], tmp_path: Path
) -> None:
    postgres, redis = stores
    authority, first = Authority(tmp_path), free_port(2)
    chain, key, _ = authority.issue()
    env = environment(
        tmp_path / "data", port="0", database_url=postgres.create("tls"), redis_url=redis.url()
    )
    arguments = ("--workers", "2", "--worker-ports", str(first))
    files = ("--tls-cert", str(chain), "--tls-key", str(key))
    async with Program("-m", "outrider", "serve", *arguments, *files, env=env) as workers:
        assert (await workers.next_line(90)).endswith("with 2 workers")
        _, _, renewed = authority.issue()
        workers.signal(signal.SIGHUP)
        for port in (first, first + 1):

            async def is_new(port: int = port) -> bool:
                return await serial_number(port, authority) == renewed

            await eventually(is_new)
        workers.signal(signal.SIGTERM)
        assert await workers.ends() == 0


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"tls_cert": "/nonexistent/cert.pem"}, "/nonexistent/cert.pem"),
        ({"tls_key": "/nonexistent/key.pem"}, "OUTRIDER_TLS_KEY"),
    ],
)
async def test_a_start_without_it_is_a_sentence(
    tmp_path: Path, settings: dict[str, str], name: str
) -> None:
    env = environment(tmp_path / "data", port="0", **settings)
    assert name in (await outrider("serve", env=env)).assert_sentence()
