"""One trace from a request to the agent's answer: a service, a machine agent and the demo agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.machine.app import run_daemon
from outrider.machine.settings import Connection, DaemonSettings
from outrider.tracing import MACHINE_AGENT, SERVICE
from tests.conftest import settings
from tests.machine.agents.machine import kill_server
from tests.rig.site import Owner, Site
from tests.rig.spans import TRACE_ID, Collector, ExportedSpan, collecting, export_to, exporting
from tests.rig.stores import SQLite
from tests.rig.waiting import TIMEOUT

pytestmark = pytest.mark.asyncio(loop_scope="module")

V1 = "/api/v1"
CHAT = "POST /api/v1/shortcuts/{ideId}/chat"
CALLER = "b7ad6b7169203331"


@dataclass
class Traced:
    """A service and a machine agent that export to a collector, and a session of the demo agent."""

    collector: Collector
    owner: Owner
    target: str

    async def says(self, message: str, trace_id: str) -> str:
        """Send a message as part of a caller's trace; return the cursor of its turn."""
        sent = await self.owner.api.post(
            f"{V1}/shortcuts/{self.target}/chat?unknown=query-secret",
            json={"message": message},
            headers={"traceparent": f"00-{trace_id}-{CALLER}-01"},
        )
        assert sent.status_code == 200, sent.text
        cursor: str = sent.json()["cursor"]
        return cursor

    async def trace(self, trace_id: str) -> dict[str, ExportedSpan]:
        """Return the spans of a message's trace once its turn has ended."""
        names = (CHAT, "command send_chat", "execute send_chat", "deliver message", "agent turn")
        return await self.collector.trace(trace_id, *names)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def traced(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLite) -> AsyncIterator[Traced]:
    folder = tmp_path_factory.mktemp("traced")
    (folder / "home" / "project").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        async with AsyncExitStack() as stack:
            collector = await stack.enter_async_context(collecting())
            export_to(collector.url, patch)
            service = await stack.enter_async_context(exporting(SERVICE))
            machine = await stack.enter_async_context(exporting(MACHINE_AGENT))
            site = Site(settings(folder / "data", sqlite), tracing=service)
            await site.start()
            stop, connected = asyncio.Event(), asyncio.Event()
            owner = await site.account()
            daemon = await _daemon(folder / "config", owner)
            running = asyncio.create_task(
                run_daemon(daemon, stop, lambda _: connected.set(), tracing=machine)
            )
            try:
                async with asyncio.timeout(TIMEOUT):
                    await connected.wait()
                target = await _launched(owner, daemon, folder / "home" / "project")
                yield Traced(collector, owner, target)
                machine_id = daemon.load_connection().daemon_id
                path = f"{V1}/shortcuts/{machine_id}/stop"
                assert (await owner.api.post(path, json={"type": "demo"})).status_code == 200
            finally:
                stop.set()
                async with asyncio.timeout(TIMEOUT):
                    await running
                await site.close()
                kill_server(daemon.tmux_socket)


async def _daemon(config_dir: Path, owner: Owner) -> DaemonSettings:
    enrolled = await owner.enrolls()
    chosen = DaemonSettings(config_dir)
    chosen.save_connection(
        Connection(
            server=owner.site.url,
            daemon_id=enrolled.daemon_id,
            token=enrolled.token,
            nickname=enrolled.nickname,
        )
    )
    return chosen


async def _launched(owner: Owner, daemon: DaemonSettings, project: Path) -> str:
    machine_id = daemon.load_connection().daemon_id
    launch = {"type": "demo", "dir": str(project)}
    launched = await owner.api.post(f"{V1}/shortcuts/{machine_id}/launch", json=launch)
    assert launched.status_code == 200, launched.text
    return f"{machine_id}:session:{launched.json()['sessionId']}"


async def test_a_message_is_one_trace_to_the_agents_answer(traced: Traced) -> None:
    await traced.says("Hello body-secret", TRACE_ID)
    names = (CHAT, "command send_chat", "execute send_chat", "agent turn", "deliver message")
    by_name = await traced.trace(TRACE_ID)
    spans = request, _, _, turn, _ = [by_name[name] for name in names]
    assert [span.parent for span in spans] == [CALLER, *(span.id for span in spans[:-1])]
    assert [span.kind for span in spans] == ["server", "client", "server", "internal", "internal"]
    assert [span.service for span in spans] == ["outrider"] * 2 + ["outrider-daemon"] * 3
    assert request.attributes["http.route"] == "/api/v1/shortcuts/{ideId}/chat"
    assert request.attributes["http.response.status_code"] == 200
    assert turn.attributes["outrider.turn.outcome"] == "idle"
    assert not any(span.is_failed for span in by_name.values())
    sent = b"".join(traced.collector.bodies)
    for secret in ("body-secret", "query-secret", traced.owner.key):
        assert secret.encode() not in sent


async def test_a_turn_ends_where_it_waits_for_an_approval(traced: Traced) -> None:
    trace_id = "1" * 32
    await traced.says("tool", trace_id)
    turn = (await traced.trace(trace_id))["agent turn"]
    assert turn.attributes["outrider.turn.outcome"] == "waiting_approval"
    answered = await traced.owner.api.post(
        f"{V1}/shortcuts/{traced.target}/approve", json={"action": "reject"}
    )
    assert answered.status_code == 200, answered.text
    execution = await traced.collector.request(answered.headers["x-request-id"])
    assert execution.trace_id != trace_id


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("traceparent", "00-zz")],
        [("traceparent", f"00-{'2' * 32}-{CALLER}-01"), ("traceparent", "00-zz")],
    ],
    ids=["none", "malformed", "two"],
)
async def test_a_trace_of_its_own(traced: Traced, headers: list[tuple[str, str]]) -> None:
    response = await traced.owner.api.get(f"{V1}/daemons", headers=headers)
    assert response.status_code == 200
    span = await traced.collector.request(response.headers["x-request-id"])
    assert (span.name, span.parent) == ("GET /api/v1/daemons", "")
    assert span.trace_id != "2" * 32


async def test_what_no_route_serves_is_named_by_its_method(traced: Traced) -> None:
    response = await traced.owner.api.get("/api/no-such-secret")
    assert response.status_code == 404
    span = await traced.collector.request(response.headers["x-request-id"])
    assert span.name == "GET"
    assert "http.route" not in span.attributes


async def test_health_and_pages_are_not_traced(traced: Traced) -> None:
    ids = [
        (await traced.owner.api.get(path)).headers["x-request-id"]
        for path in ("/healthz", "/readyz", "/metrics", "/")
    ]
    last = await traced.owner.api.get(f"{V1}/daemons")
    await traced.collector.request(last.headers["x-request-id"])
    traced_ids = {span.attributes.get("outrider.request.id") for span in traced.collector.spans}
    assert traced_ids.isdisjoint(ids)


async def test_requests_do_not_need_the_collector(traced: Traced) -> None:
    released = asyncio.Event()

    async def hang() -> int:
        await released.wait()
        return 503

    async def accept() -> int:
        return 200

    traced.collector.answers(hang)
    try:
        for _ in range(20):
            response = await traced.owner.api.get(f"{V1}/shortcuts/{traced.target}/status")
            assert response.status_code == 200
    finally:
        traced.collector.answers(accept)
        released.set()
