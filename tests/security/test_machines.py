"""What a machine of any tenant sends costs the service and its database little."""

import asyncio
import contextlib
import json

import pytest
from websockets.exceptions import ConnectionClosed

from outrider.contract.limits import MAX_STATE_BYTES
from tests.rig.machine import ScriptedMachine, closing, socket
from tests.rig.machine import hello as greeting
from tests.rig.samples import as_json, session
from tests.rig.waiting import TIMEOUT
from tests.security.target import MB, Target
from tests.service.webhooks.events import agent_event

LONG = "x" * (15 * MB)


def stored_bytes(target: Target) -> int:
    """Return how large the files of the service's database are."""
    directory = target.site.settings.data_dir
    return sum(file.stat().st_size for file in directory.iterdir() if file.is_file())


async def is_closed_for(machine: ScriptedMachine, frame: object) -> tuple[int, str]:
    await machine.say_raw(json.dumps(frame))
    return await machine.closed()


async def refused(target: Target, token: str, message: str) -> tuple[int, str]:
    """Say this first, and return how the service closes the connection."""
    async with socket(target.gateway, token) as connection:
        await connection.send(message)
        with pytest.raises(ConnectionClosed) as end:
            async with asyncio.timeout(TIMEOUT):
                await connection.recv()
    return closing(end.value)


async def test_b5_twenty_five_titles_of_15_mb(target: Target) -> None:
    """They took 1.5 GB of memory and 550 MB of database."""
    token = await target.token()
    stored = stored_bytes(target)
    async with target.grows_at_most(120 * MB):  # a frame is in memory a few times, one at a time
        for _ in range(25):
            async with ScriptedMachine(target.gateway, token, greeting()) as machine:
                change = {"type": "change", "sessions": [as_json(session()) | {"title": LONG}]}
                code, reason = await is_closed_for(machine, change)
                assert code == 4400
                assert "sessions[0].title" in reason
    assert stored_bytes(target) - stored < 5 * MB


@pytest.mark.parametrize("field", ["id", "sessionId", "ideId", "ideType", "chatTitle", "message"])
async def test_b5_events_of_15_mb(target: Target, field: str) -> None:
    token = await target.token()
    stored = stored_bytes(target)
    async with target.grows_at_most(120 * MB):
        for _ in range(5):
            async with ScriptedMachine(target.gateway, token, greeting()) as machine:
                event = as_json(agent_event()) | {field: LONG}
                code, _ = await is_closed_for(machine, {"type": "event", "seq": 1, "event": event})
                assert code == 4400
    assert stored_bytes(target) - stored < 5 * MB


async def test_b5_machines_that_report_all_that_they_may(target: Target) -> None:
    """What is kept of each is bounded, so that memory is bounded by the number of machines."""
    full = [session(error="x" * 16_000) for _ in range(MAX_STATE_BYTES // 17_000)]
    stored = stored_bytes(target)
    machines = 25
    async with target.grows_at_most(machines * 10 * MB):
        for _ in range(machines):
            assert (await target.machine(*full)).is_open
    # SQLite's file and its log hold each report once or twice.
    assert stored_bytes(target) - stored < machines * 3 * MAX_STATE_BYTES


async def test_b5_a_machine_that_reports_more_and_more(target: Target) -> None:
    token = await target.token()
    async with target.grows_at_most(60 * MB):
        for _ in range(5):
            async with ScriptedMachine(target.gateway, token, greeting()) as machine:
                with contextlib.suppress(ConnectionClosed):
                    for _ in range(2000):
                        reported = as_json(session(error="x" * 16_000))
                        await machine.say_raw(
                            json.dumps({"type": "change", "sessions": [reported]})
                        )
                assert (await machine.closed())[0] == 4413


async def test_b5_ever_new_lists_of_providers(target: Target) -> None:
    """Lists that machines share are cached: not these."""
    machine = await target.machine()
    async with target.grows_at_most(60 * MB):
        for number in range(600):
            provider = {
                "type": f"agent-{number}",
                "category": "cli",
                "displayName": "x" * 256,
                "installed": True,
                "path": "/" + "x" * 4000,
                "verified": False,
            }
            snapshot = {
                "type": "snapshot",
                "machine": as_json(greeting().machine),
                "providers": [provider] * 100,
                "sessions": [],
            }
            await machine.say_raw(json.dumps(snapshot))
        await machine.settled()


async def test_b6_escape_sequences_do_not_reach_the_log(target: Target) -> None:
    token = await target.token()
    for field in ("hostname", "release"):
        hello = as_json(greeting()) | {"type": "hello"}
        hello["machine"][field] = "box\x1b]0;owned\x07"
        hello["version"] = "1\x1b[2J"
        code, reason = await refused(target, token, json.dumps(hello))
        assert code == 4400
        assert reason.isprintable()
    assert "machine refused" in target.log
    assert not any(letter in target.log for letter in "\x1b\x07\x9b")
