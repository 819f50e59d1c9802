"""Two nodes whose clocks are five minutes apart: nobody notices. Holds docs/nodes.md, "Clocks"."""

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from outrider.cli.admin import issue_key
from outrider.contract.frames import CloseCode, Event
from outrider.sdk import webhooks
from outrider.service.accounts.principal import ALL_SCOPES
from tests.conftest import early_in_a_window
from tests.rig.people import login
from tests.rig.waiting import eventually
from tests.service.webhooks.events import agent_event, event_id
from tests.service.webhooks.receiver import one_after_another, response
from tests.system.faults.cluster import GRACE, NODE_TIMEOUT, V1, Fleet
from tests.system.faults.conftest import StartFleet
from tests.system.faults.steps import answered, listed

pytestmark = pytest.mark.faults

DECLARED_DEAD = "this node was declared dead by its peers; releasing its machines"

AHEAD = 300
"""Seconds."""

_LIBRARY = "libfaketimeMT.so.1"


def ahead() -> dict[str, str]:
    """Return the environment of a process whose clock is ahead; it measures time as others do."""
    for directory in (Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64")):
        for library in directory.glob(f"**/faketime/{_LIBRARY}"):
            return {
                "LD_PRELOAD": str(library),
                "FAKETIME": f"+{AHEAD}s",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "FAKETIME_NO_CACHE": "0",
            }
    missing = "libfaketime is not installed: on Debian, apt-get install faketime"
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


async def test_the_clock_is_ahead() -> None:
    """If it were not, the tests below would say nothing."""
    code = "import time; print(time.time(), time.monotonic())"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=os.environ | ahead(), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    theirs, monotonic = map(float, out.split())
    assert AHEAD - 5 < theirs - time.time() < AHEAD + 5
    assert abs(monotonic - time.monotonic()) < 60


async def test_events_come_once_and_credentials_stay_valid_when_a_clock_is_ahead(
    start_fleet: StartFleet,
) -> None:
    async with start_fleet(2, more=[{}, ahead()], webhook_retry_delays="0.5,1,2") as two:
        right, fast = two.nodes
        _is_ahead(two)
        machines = [await two.machine() for _ in two.nodes]
        await two.subscribes(right, "*")
        two.receiver.respond_with(one_after_another(*[response(500)] * 10, response(200)))
        sockets = [
            await machine.connects(node) for machine, node in zip(machines, two.nodes, strict=True)
        ]
        for number in range(20):
            for index, socket in enumerate(sockets):
                event = agent_event(id=event_id(2 * number + index))
                await socket.say(Event(seq=number + 1, event=event))
        await eventually(lambda: _delivered(two) >= 42)
        await two.deliveries_are_over()
        await two.every_node_looks(NODE_TIMEOUT + GRACE, two.nodes)

        came = Counter(taken.json["id"] for taken in two.receiver.requests)
        assert len(came) == 42, "forty events, and two machines that came"
        assert sum(came.values()) == 52, "ten were tried twice"
        attempts = await two.attempts()
        assert {status for status, _ in attempts} == {"succeeded"}
        assert sum(count for _, count in attempts) == 52
        for taken in two.receiver.requests:
            webhooks.verify(taken.body, taken.headers["X-Service-Signature"], two.secret, 60)

        for node in two.nodes:
            client = two.client(node)
            assert await listed(client) == {machine.id for machine in machines}
            for machine, socket in zip(machines, sockets, strict=True):
                await answered(client, machine, socket)
            for logged in ("node declared dead", DECLARED_DEAD):
                assert node.logged(logged) == 0
            assert node.errors() == []

        moved = await machines[0].connects(fast)
        assert (await sockets[0].closed())[0] == CloseCode.REPLACED
        await answered(two.client(right), machines[0], moved)


async def test_credentials_of_one_node_hold_on_the_other(start_fleet: StartFleet) -> None:
    async with start_fleet(2, more=[{}, ahead()]) as two:
        _is_ahead(two)
        _, key = await issue_key(
            two.site.database, two.owner.id, "short", set(ALL_SCOPES), lifetime=120_000
        )
        for made in two.nodes:
            two.site.url = made.url
            token = (await login(two.site, two.owner.email)).json()["token"]
            for node in two.nodes:
                two.site.url = node.url
                page = two.site.client(token)
                account = await page.get(f"{V1}/account")
                assert account.status_code == 200, account.text
                body = {"url": two.receiver.url, "events": ["machine:connected"]}
                recent = await page.post(f"{V1}/webhooks", json=body)
                assert recent.status_code == 201, recent.text
                assert (await two.site.client(key).get(f"{V1}/daemons")).status_code == 200

                new = await page.post(f"{V1}/auth/enroll/code", json={})
                body = {"code": new.json()["code"], "hostname": "h", "platform": "linux"}
                enrolled = await two.client(made).post(f"{V1}/auth/enroll", json=body)
                assert enrolled.is_success, enrolled.text


async def test_idempotency_keys_and_limits_hold_across_nodes_with_different_clocks(
    start_fleet: StartFleet,
) -> None:
    async with start_fleet(2, more=[{}, ahead()], rate_limit_key="30") as two:
        _is_ahead(two)
        machine = await two.machine()
        socket = await machine.connects(two.nodes[0])
        clients = [two.client(node) for node in two.nodes]
        first, again = clients
        await early_in_a_window()
        for number in range(2):
            asked = asyncio.create_task(_change(first, machine.terminal, number))
            await socket.answers(await socket.takes("terminal"))
            done = await asked
            assert done.status_code == 200
            replayed = await _change(again, machine.terminal, number)
            assert replayed.headers["idempotency-replayed"] == "true"
            assert replayed.json() == done.json()
            first, again = again, first
        assert socket.received_nothing()

        codes = [(await clients[n % 2].get(f"{V1}/daemons")).status_code for n in range(40)]
        assert 24 <= codes.count(200) <= 30, "what was asked before counts; a window may end"
        assert codes[-2:] == [429, 429]
        limits = [(await client.get(f"{V1}/daemons")).headers["ratelimit"] for client in clients]
        assert _reset(limits[0]) - _reset(limits[1]) in (-1, 0, 1)


def _is_ahead(two: Fleet) -> None:
    """Check that the second node's clock is ahead of the first one's, as its own log tells."""
    right, fast = (node.started_at() for node in two.nodes)
    assert AHEAD - 30 < fast - right < AHEAD + 30


async def _change(client: httpx.AsyncClient, path: str, number: int) -> httpx.Response:
    key = {"Idempotency-Key": f"key-{number}"}
    return await client.post(path, json={"command": "date"}, headers=key)


def _delivered(two: Fleet) -> int:
    return len({taken.json["id"] for taken in two.receiver.requests})


def _reset(header: str) -> int:
    """Return after how many seconds the key has room again, of a `RateLimit` header."""
    return int(header.split('"key"')[1].split("t=")[1].split(",", maxsplit=1)[0])
