"""What answers at an address: the real service, servers that misbehave, and TLS."""

import asyncio
from email.utils import formatdate
from pathlib import Path
from time import time

import pytest

from outrider import __version__
from outrider.cli.client import credentials
from outrider.cli.doctor.service_checks import Failure, KeyFacts, MachineFacts, ServiceFacts
from outrider.cli.doctor.service_facts import (
    Access,
    access,
    key_facts,
    listed_machine,
    machine_facts,
    service_facts,
)
from outrider.machine.settings import DaemonSettings
from tests.cli.doctor.certificates import certificate, server_context
from tests.sdk.conftest import Workplace
from tests.sdk.scripted_api import CLOSES, HANGS, NOT_HTTP, ScriptedApi, Step, answer
from tests.servers.server import reserve_ports

pytestmark = pytest.mark.asyncio(loop_scope="session")

DESCRIPTION = b'{"info":{"title":"Outrider","version":"9.9"}}'


async def facts_of(url: str, step_seconds: float = 30) -> ServiceFacts:
    return await asyncio.to_thread(service_facts, url, step_seconds)


@pytest.fixture
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OUTRIDER_URL", "OUTRIDER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OUTRIDER_CONFIG_DIR", str(tmp_path / "config"))


async def test_the_real_service(workplace: Workplace) -> None:
    facts = await facts_of(workplace.site.url)
    assert (facts.version, facts.not_ready, facts.failure) == (__version__, None, None)
    assert facts.clock_offset is not None
    assert abs(facts.clock_offset) < 60


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (answer(200, b"<html>"), {"status": 200, "version": None}),
        (answer(200, b'{"info":{"title":"Petstore"}}'), {"status": 200, "version": None}),
        (answer(404, b"{}"), {"status": 404, "version": None}),
        (answer(421, b"{}"), {"status": 421}),
        (answer(301, b"", location="https://b.example.org"), {"location": "https://b.example.org"}),
        (CLOSES, {"failure": Failure.CONNECT}),
        (NOT_HTTP, {"failure": Failure.CONNECT}),
    ],
)
async def test_what_else_may_answer(step: Step, expected: dict[str, object]) -> None:
    async with ScriptedApi([step]) as api:
        facts = await facts_of(api.url)
    assert {name: getattr(facts, name) for name in expected} == expected
    assert all("authorization" not in request.headers for request in api.requests)


async def test_no_answer_in_time() -> None:
    async with ScriptedApi([HANGS]) as api:
        assert (await facts_of(api.url, 0.05)).failure is Failure.TIMEOUT


async def test_a_service_that_is_not_ready() -> None:
    lacking = answer(503, b'{"status":"unavailable","database":"unavailable","redis":"ok"}')
    async with ScriptedApi([answer(200, DESCRIPTION), lacking]) as api:
        facts = await facts_of(api.url)
    assert (facts.version, facts.not_ready) == ("9.9", "database unavailable")


async def test_another_time() -> None:
    late = answer(200, DESCRIPTION, date=formatdate(time() - 600, usegmt=True))
    async with ScriptedApi([late]) as api:
        facts = await facts_of(api.url)
    assert facts.clock_offset is not None
    assert 500 < facts.clock_offset < 700


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://[", "127.0.0.1:1", "x y"])
async def test_what_is_no_address(url: str) -> None:
    assert (await facts_of(url)).failure is Failure.ADDRESS


async def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    port, release = reserve_ports()
    try:
        facts = await facts_of(f"http://me:secret@127.0.0.1:{port}")
        assert facts.failure is Failure.CONNECT
        assert "secret" not in str(facts)
        monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
        facts = await facts_of("http://o.example.org")
        assert (facts.failure, facts.proxy) == (Failure.PROXY, f"127.0.0.1:{port}")
    finally:
        release()


async def test_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def at(file: Path, step: Step) -> ServiceFacts:
        async with ScriptedApi([step], server_context(file)) as api:
            return await facts_of(api.url)

    described = answer(200, DESCRIPTION)
    file = certificate(tmp_path, days=20.5)
    assert (await at(file, described)).failure is Failure.TLS_ISSUER
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    facts = await at(file, described)
    assert (facts.failure, facts.version) == (None, "9.9")
    assert facts.certificate_seconds is not None
    assert 20 < facts.certificate_seconds / 86400 < 20.5
    certificate(tmp_path, days=-1)
    assert (await at(file, described)).failure is Failure.TLS_EXPIRED
    certificate(tmp_path, days=20, address="127.0.0.2")
    assert (await at(file, described)).failure is Failure.TLS_NAME


async def test_https_where_there_is_none(workplace: Workplace) -> None:
    facts = await facts_of(workplace.site.url.replace("http", "https"))
    assert facts.failure is Failure.TLS


async def test_where_address_and_key_are_from(
    nothing_set: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = access(None)
    assert (chosen.url, chosen.key, chosen.key_facts.source) == (
        "http://127.0.0.1:8400",
        None,
        None,
    )
    assert access("https://enrolled.example.org").url == "https://enrolled.example.org"
    file = credentials.save("https://kept.example.org/", "ork_kept")
    chosen = access("https://enrolled.example.org")
    assert (chosen.url, chosen.key) == ("https://kept.example.org", "ork_kept")
    assert chosen.key_facts.source == str(file)
    monkeypatch.setenv("OUTRIDER_URL", "https://other.example.org")
    chosen = access(None)
    assert (chosen.url, chosen.key) == ("https://other.example.org", None)
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_mine")
    assert access(None).key_facts.source == "OUTRIDER_API_KEY"
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_“quoted”")
    assert access(None).key_facts.is_refused
    monkeypatch.delenv("OUTRIDER_API_KEY")
    file.write_text("{")
    assert str(file) in (access(None).key_facts.problem or "")
    monkeypatch.setenv("OUTRIDER_API_KEY", "ork_mine")
    chosen = access(None)  # the file is not needed then
    assert (chosen.url, chosen.key) == ("https://other.example.org", "ork_mine")


async def test_keys(workplace: Workplace) -> None:
    async def of(key: str) -> KeyFacts:
        return await asyncio.to_thread(
            key_facts, Access(workplace.site.url, key, KeyFacts("here", is_checked=False))
        )

    assert (await of(workplace.key)).account_id is not None
    assert (await of("ork_wrong")).is_refused
    async with ScriptedApi([answer(503, b'{"error":"Later"}')]) as api:
        chosen = Access(api.url, "ork_x", KeyFacts("here", is_checked=False))
        facts = await asyncio.to_thread(key_facts, chosen)
    assert (facts.account_id, facts.is_checked, "Later" in (facts.problem or "")) == (
        None,
        True,
        True,
    )


async def test_the_machine(workplace: Workplace, tmp_path: Path) -> None:
    assert machine_facts(DaemonSettings(tmp_path)) == MachineFacts()
    (tmp_path / "connection.json").write_text("{")
    assert machine_facts(DaemonSettings(tmp_path)).failure is not None
    settings = DaemonSettings(workplace.project.parent / "config")
    facts = machine_facts(settings)
    assert (facts.id, facts.nickname) == (workplace.machine_id, "laptop")
    assert facts.process is not None
    assert facts.process.isdecimal()
    chosen = Access(workplace.site.url, workplace.key, KeyFacts("here"))
    listed = await asyncio.to_thread(listed_machine, facts, chosen)
    assert (listed.listed, listed.is_connected, listed.version) == (True, True, __version__)
    stranger = (await workplace.site.account()).key
    other = await asyncio.to_thread(listed_machine, facts, chosen._replace(key=stranger))
    assert other.listed is False
