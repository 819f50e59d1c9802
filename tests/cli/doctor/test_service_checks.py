"""What the checks of the service say: of a real one, of servers that misbehave, and of TLS."""

import asyncio
import ssl
from email.utils import formatdate
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest

from outrider import __version__
from outrider.cli.client import credentials
from outrider.cli.doctor.finding import Finding, Status, ok
from outrider.cli.doctor.service_checks import (
    Access,
    Service,
    access,
    check_all,
    check_certificate,
    check_clock,
    check_key,
    check_machine,
    check_versions,
    examine_service,
    is_loopback_url,
)
from outrider.machine.settings import Connection, DaemonSettings
from tests.cli.doctor.test_local_checks import assert_says
from tests.rig.certificates import Authority
from tests.sdk.conftest import Workplace
from tests.sdk.scripted_api import CLOSES, HANGS, NOT_HTTP, ScriptedApi, Step, answer
from tests.servers.server import reserve_ports

pytestmark = pytest.mark.asyncio(loop_scope="session")

DAY = 86400.0
DESCRIPTION = b'{"info":{"title":"Outrider","version":"9.9"}}'
LOCAL = Service("http://127.0.0.1:8400", True, ok("service", ""), __version__)
REMOTE = LOCAL._replace(url="https://o.example.org", is_loopback=False)


async def examine(url: str, step_seconds: float = 30) -> Service:
    return await asyncio.to_thread(examine_service, url, step_seconds)


async def test_the_real_service_answers(workplace: Workplace) -> None:
    service = await examine(workplace.site.url)
    assert_says(service.finding, Status.OK, workplace.site.url)
    assert service.version == __version__
    assert_says(check_clock(service), Status.OK)
    assert_says(check_certificate(service), Status.OK)
    encrypted = await examine(workplace.site.url.replace("http", "https"))
    assert_says(encrypted.finding, Status.FAILED, "speaks TLS")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([answer(200, b"<html>")], ["not Outrider", "OUTRIDER_URL"]),
        ([answer(200, b'{"info":{"title":"Petstore"}}')], ["not Outrider"]),
        ([answer(404, b"{}")], ["status 404"]),
        ([answer(421, b"{}")], ["OUTRIDER_ALLOWED_HOSTS"]),
        ([answer(301, b"", location="https://b.example")], ["redirects to https://b.example"]),
        ([CLOSES], ["outrider up", "outrider login"]),
        ([NOT_HTTP], ["outrider up"]),
        (
            [
                answer(200, DESCRIPTION),
                answer(503, b'{"status":"unavailable","database":"unavailable","redis":"ok"}'),
            ],
            ["not ready: database unavailable", "log"],
        ),
    ],
)
async def test_what_is_not_a_ready_service_fails(steps: list[Step], words: list[str]) -> None:
    async with ScriptedApi(steps) as api:
        service = await examine(api.url)
    assert_says(service.finding, Status.FAILED, *words)
    assert all("authorization" not in request.headers for request in api.requests)


async def test_no_answer_in_time_fails() -> None:
    async with ScriptedApi([HANGS]) as api:
        assert_says((await examine(api.url, 0.05)).finding, Status.FAILED, "not in time")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://[", "127.0.0.1:1", "x y"])
async def test_what_is_no_address_fails(url: str) -> None:
    assert_says((await examine(url)).finding, Status.FAILED, "not an http address", "OUTRIDER_URL")


async def test_nobody_answers_also_not_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    port, release = reserve_ports()
    here = f"http://me:secret@127.0.0.1:{port}"
    try:
        service = await examine(here)
        assert_says(service.finding, Status.FAILED, "outrider up")
        assert "secret" not in str(service)
        monkeypatch.setenv("http_proxy", here)
        proxied = (await examine("http://o.example.org")).finding
        assert_says(
            proxied, Status.FAILED, f"through the proxy 127.0.0.1:{port}", "Check the proxy"
        )
        monkeypatch.setenv("no_proxy", "o.example.org")
        local = (await examine("http://localhost:9")).finding
        assert_says(local, Status.FAILED, "NO_PROXY=127.0.0.1,localhost")
        assert "secret" not in str(proxied) + str(local)
    finally:
        release()


async def test_the_certificate_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)

    async def at(address: str = "127.0.0.1", days: float = 20.5) -> Service:
        chain, key, _ = authority.issue(address=address, days=days)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key)
        async with ScriptedApi([answer(200, DESCRIPTION)], context) as api:
            return await examine(api.url)

    assert_says((await at()).finding, Status.FAILED, "SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    service = await at()
    assert service.version == "9.9"
    assert_says(check_certificate(service), Status.OK, "20 more days")
    assert_says((await at(days=-1)).finding, Status.FAILED, "Renew")
    assert_says((await at("127.0.0.2")).finding, Status.FAILED, "host the certificate names")


async def test_a_certificate_that_expires_soon_is_warned_of() -> None:
    assert_says(check_certificate(REMOTE), Status.SKIPPED, "service")
    soon = check_certificate(REMOTE._replace(certificate_seconds=3.5 * DAY))
    assert_says(soon, Status.WARNING, "3 days", "Renew")
    plain = check_certificate(REMOTE._replace(url="http://o.example.org"))
    assert_says(plain, Status.WARNING, "not encrypted", "https")


@pytest.mark.parametrize(("offset", "words"), [(-600, "ahead of"), (600, "behind")])
async def test_a_clock_that_differs_fails(offset: int, words: str) -> None:
    other = answer(200, DESCRIPTION, date=formatdate(time() + offset, usegmt=True))
    async with ScriptedApi([other]) as api:
        finding = check_clock(await examine(api.url))
    assert_says(finding, Status.FAILED, words, "timedatectl")
    assert_says(check_clock(LOCAL), Status.SKIPPED)


async def test_the_address_and_key_of_the_commands_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OUTRIDER_URL", "OUTRIDER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUTRIDER_CONFIG_DIR", str(tmp_path))
    settings = DaemonSettings(tmp_path)
    assert access(settings) == Access("http://127.0.0.1:8400")
    settings.save_connection(
        Connection(
            server="https://enrolled.example.org", daemon_id="m", token="omt_x", nickname="n"
        )
    )
    assert access(settings) == Access("https://enrolled.example.org")
    file = credentials.save("https://saved.example.org/", "ork_saved")
    assert access(settings) == Access("https://saved.example.org", "ork_saved", str(file))
    monkeypatch.setenv("OUTRIDER_URL", "https://other.example.org")
    chosen = access(None)
    assert (chosen.url, chosen.key) == ("https://other.example.org", None)
    assert "saved.example.org" in (chosen.problem or "")
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_mine")
    file.write_text("{")  # the file is not needed then
    assert access(None) == Access("https://other.example.org", "ork_mine", "OUTRIDER_API_KEY")
    monkeypatch.delenv("OUTRIDER_API_KEY")
    assert str(file) in (access(None).problem or "")


async def test_keys_are_valid_or_refused(workplace: Workplace) -> None:
    async def of(url: str, key: str) -> Finding:
        return await asyncio.to_thread(check_key, Access(url, key, "client.json"), LOCAL, None)

    url = workplace.site.url
    assert_says(await of(url, workplace.key), Status.OK, "client.json", "account acct_")
    for wrong in ("ork_wrong", "ork_“quoted”"):
        assert_says(await of(url, wrong), Status.FAILED, "client.json", "outrider login")
    async with ScriptedApi([answer(503, b'{"error":"Later"}')]) as api:
        assert_says(await of(api.url, "ork_x"), Status.FAILED, "cannot be checked: Later")


async def test_a_key_is_needed_but_for_a_machine_agent_alone() -> None:
    none = Access("https://o.example.org")
    assert_says(check_key(none, LOCAL, None), Status.FAILED, "no API key", "outrider login")
    assert_says(check_key(none, LOCAL, "http://127.0.0.1:8400"), Status.FAILED, "no API key")
    elsewhere = "https://outrider.example.org"
    assert_says(check_key(none, LOCAL, elsewhere), Status.OK, "machine agent needs none")
    unusable = none._replace(problem="The stored key is for another service")
    assert_says(check_key(unusable, LOCAL, elsewhere), Status.FAILED, "another service")
    absent = LOCAL._replace(version=None)
    assert_says(check_key(Access("", "ork_x"), absent, None), Status.SKIPPED)


async def test_other_versions_are_warned_of() -> None:
    assert_says(check_versions(LOCAL, __version__), Status.OK, f"machine agent: {__version__}")
    assert_says(check_versions(LOCAL, None), Status.OK)
    assert_says(check_versions(LOCAL._replace(version=None), None), Status.SKIPPED)
    other = check_versions(LOCAL._replace(version="0.0.7"), "0.0.6")
    words = ["the service 0.0.7", "the machine agent 0.0.6", "outrider upgrade"]
    assert_says(other, Status.WARNING, __version__, *words)


async def test_the_machine_is_enrolled_runs_and_is_connected(
    workplace: Workplace, tmp_path: Path
) -> None:
    async def of(settings: DaemonSettings | None, key: str | None = workplace.key) -> Finding:
        chosen = Access(workplace.site.url, key, "here")
        return (await asyncio.to_thread(check_all, chosen, settings))[-1]

    assert_says(await of(DaemonSettings(tmp_path)), Status.WARNING, "not enrolled", "setup")
    assert_says(await of(None), Status.WARNING, "not enrolled")
    settings = DaemonSettings(workplace.project.parent / "config")
    assert_says(await of(settings), Status.OK, "laptop", workplace.machine_id, "is connected")
    assert_says(await of(settings, None), Status.OK, "not asked")
    stranger = (await workplace.site.account()).key
    assert_says(await of(settings, stranger), Status.WARNING, "does not have the machine")
    connection = settings.load_connection()
    stopped = DaemonSettings(tmp_path)
    stopped.save_connection(connection)
    assert_says(await of(stopped), Status.FAILED, "does not run", "outrider daemon")
    stopped.connection_file.write_text("{")
    assert_says(await of(stopped), Status.FAILED, "cannot be read", "outrider setup")


async def test_a_machine_agent_without_connection_fails(workplace: Workplace) -> None:
    """The service says that the machine is offline, while its agent runs."""
    settings = DaemonSettings(workplace.project.parent / "config")
    machine: Any = SimpleNamespace(connected=False)
    finding = check_machine(settings, LOCAL, machine, was_asked=True)
    assert_says(finding, Status.FAILED, "no connection", "restart")


async def test_loopback_addresses_are_on_this_machine() -> None:
    assert is_loopback_url("http://localhost:1")
    assert not is_loopback_url("https://o.example.org")
    assert not is_loopback_url("http://[")
