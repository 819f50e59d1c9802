"""The service and machines as real processes: killed, frozen, stopped, started wrongly.

Each of 404, 500, 503 and 504 (docs/api.md, Errors) happens for real: `kill -9` of the daemon, a
SIGSTOP, a service that is killed while it waits for a result.
"""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.rig.errors import assert_error
from tests.rig.installation import Installation
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.processes import environment, outrider
from tests.rig.stores import Store
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]


@pytest_asyncio.fixture(loop_scope="session")
async def installation(tmp_path: Path, store: Store) -> AsyncIterator[Installation]:
    """A installation whose processes all end with the test."""
    made = Installation(tmp_path / "data", store.migrated(tmp_path / "data"))
    yield made
    await made.held.aclose()


async def tasks(client: httpx.AsyncClient) -> float:
    """Return how many asyncio tasks the service has: one for each request, and others."""
    lines = (await client.get("/metrics")).text.splitlines()
    (tasks,) = [line for line in lines if line.startswith("outrider_tasks ")]
    return float(tasks.split()[1])


async def test_a_machine_is_killed(installation: Installation) -> None:
    """kill -9: 503 for what is under way and in the grace period."""
    await installation.serve(grace_period="600")
    await installation.populate()
    machine = await installation.machine_program()
    async with installation.client() as client:
        request = asyncio.create_task(client.get(installation.status))
        assert await machine.next_line() == "took"
        machine.signal(signal.SIGKILL)
        assert_error(await request, 503)
        assert_error(await client.get(installation.status), 503)
        assert len((await client.get("/api/v1/daemons")).json()["daemons"]) == 1


async def test_a_machine_that_was_killed_is_offline_after_the_grace_period(
    installation: Installation,
) -> None:
    await installation.serve(grace_period="0.2")
    await installation.populate()
    machine = await installation.machine_program("answer")
    async with installation.client() as client:
        assert (await client.get(installation.status)).is_success
        machine.signal(signal.SIGKILL)

        async def offline() -> bool:
            return not (await client.get("/api/v1/daemons")).json()["daemons"]

        await eventually(offline)
        assert_error(await client.get(installation.status), 500)


async def test_a_machine_is_frozen(installation: Installation) -> None:
    """SIGSTOP: 504, and once it goes on it serves again."""
    await installation.serve(command_timeout="0.5")
    await installation.populate()
    machine = await installation.machine_program("answer")
    async with installation.client() as client:

        async def serves() -> bool:
            return (await client.get(installation.status)).is_success

        await eventually(serves)
        machine.signal(signal.SIGSTOP)
        assert_error(await client.get(installation.status), 504)
        machine.signal(signal.SIGCONT)
        await eventually(serves)


async def test_the_service_is_killed_in_the_midst_of_a_command(installation: Installation) -> None:
    """kill -9: accounts, keys and machines survive it; a restart serves on."""
    service = await installation.serve()
    await installation.populate()
    async with ScriptedMachine(installation.gateway, installation.token, hello()) as machine:
        async with installation.client() as client:
            request = asyncio.create_task(client.get(installation.status))
            await machine.takes("agent_status")
            service.signal(signal.SIGKILL)
            assert await service.ends() == -signal.SIGKILL
            with pytest.raises(httpx.TransportError):
                await request
        await installation.serve(service.port)
        async with installation.client() as client:
            (listed,) = (await client.get("/api/v1/daemons")).json()["daemons"]
            assert listed["id"] == installation.daemon_id
            assert_error(await client.get(installation.status), 503)
            async with ScriptedMachine(installation.gateway, installation.token, hello()) as again:
                assert again.id == installation.daemon_id
                again.obliges()
                assert (await client.get(installation.status)).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_service_is_stopped(installation: Installation, number: signal.Signals) -> None:
    """A command under way ends, the machine gets a goodbye, the exit code is 0."""
    service = await installation.serve()
    await installation.populate()
    async with (
        ScriptedMachine(installation.gateway, installation.token, hello()) as machine,
        installation.client() as client,
    ):
        request = asyncio.create_task(client.get(installation.status))
        taken = await machine.takes("agent_status")
        service.signal(number)
        await machine.answers(taken)
        assert (await request).status_code == 200
        assert (await machine.closed())[0] == 1001
        assert await service.ends() == 0


async def test_the_service_stops_in_time_with_a_frozen_machine(installation: Installation) -> None:
    """SIGTERM ends it (6 s), though a machine takes neither frames nor its close."""
    service = await installation.serve()
    await installation.populate()
    machine = await installation.machine_program()
    async with installation.client() as client:
        request = asyncio.create_task(client.get(installation.status))
        assert await machine.next_line() == "took"
        machine.signal(signal.SIGSTOP)
        path = f"/api/v1/daemons/{installation.daemon_id}/terminal"
        before = await tasks(client)
        flood = [
            asyncio.create_task(client.post(path, json={"command": "x" * 900_000}))
            for _ in range(16)
        ]

        async def all_begun() -> bool:
            return await tasks(client) >= before + len(flood)

        await eventually(all_begun)
        service.signal(signal.SIGTERM)
        assert await service.ends(TIMEOUT) == 0
        assert_error(await request, 503)
        await asyncio.wait(flood)
        assert all(request.exception() is None for request in flood)


class TestWrongStart:
    """One sentence that says what to do, exit code 1, and no traceback."""

    async def test_the_port_is_taken(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            outcome = await outrider("serve", env=environment(tmp_path / "data", port=str(port)))
        sentence = outcome.assert_sentence()
        assert f"127.0.0.1:{port}" in sentence
        assert "OUTRIDER_PORT" in sentence

    async def test_the_data_directory_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data").write_text("in the way")
        env = environment(tmp_path / "data", port="0")
        sentence = (await outrider("serve", env=env)).assert_sentence()
        assert "OUTRIDER_DATA_DIR" in sentence
        assert str(tmp_path / "data") in sentence

    async def test_the_database_url_is_wrong(self, tmp_path: Path) -> None:
        url = "mysql://user:hunter2@localhost/name"
        env = environment(tmp_path / "data", port="0", database_url=url)
        sentence = (await outrider("serve", env=env)).assert_sentence()
        assert "OUTRIDER_DATABASE_URL" in sentence
        assert "hunter2" not in sentence

    async def test_a_database_that_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "outrider.db").write_text("not a database, " * 100)
        env = environment(tmp_path / "data", port="0")
        assert "outrider.db" in (await outrider("serve", env=env)).assert_sentence()

    async def test_a_setting_is_wrong(self, tmp_path: Path) -> None:
        env = environment(tmp_path / "data", port="http")
        assert "OUTRIDER_PORT" in (await outrider("serve", env=env)).assert_sentence()
