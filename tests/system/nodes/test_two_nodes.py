"""A request on one node, a machine on another: what holds on one node holds here."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from outrider.contract.commands import CommandType
from outrider.contract.frames import MAX_COMMANDS_IN_FLIGHT, Change, CloseCode, Command, Event
from outrider.contract.resources import Session
from tests.conftest import settings
from tests.rig.errors import assert_error
from tests.rig.machine import ScriptedMachine, payload_of
from tests.rig.mcp import ACCEPT, message
from tests.rig.samples import RESULTS, TURN, session
from tests.rig.site import Site
from tests.rig.stores import PostgreSQL
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.receiver import receiving
from tests.system.nodes.pair import V1, Pair

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def answered(pair: Pair, machine: ScriptedMachine, client: httpx.AsyncClient) -> None:
    """Check that a command reaches the machine from a node, and its answer the client."""
    asked = asyncio.create_task(client.get(pair.status))
    await machine.answers(await machine.takes("agent_status"))
    response = await asked
    assert response.status_code == 200, response.text


def many_connections(site: Site, key: str) -> list[httpx.AsyncClient]:
    """Return a client for each of as many requests as commands may be in flight.

    One client alone has 100 connections at the most.
    """
    clients = [site.client(key) for _ in range(MAX_COMMANDS_IN_FLIGHT // 64)]
    return [client for client in clients for _ in range(64)]


class TestCommands:
    async def test_reach_a_machine_on_another_node(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        await answered(pair, machine, pair.here)
        await answered(pair, machine, pair.there)

    async def test_a_tool_call_for_a_machine_on_another_node(self, pair: Pair) -> None:
        """Each message is a request of its own, so any node serves it."""
        machine = await pair.machine_there(session(id="s1"))
        params = {"name": "get_agent", "arguments": {"agent": f"{pair.id}:session:s1"}}
        called = message("tools/call", params)
        for client in (pair.here, pair.there):
            asked = asyncio.create_task(client.post("/mcp", json=called, headers=ACCEPT))
            await machine.answers(await machine.takes("agent_status"))
            assert (await asked).json()["result"]["structuredContent"]["status"]

    async def test_a_wait_for_a_machine_on_another_node(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="session_1"))
        path = f"{V1}/shortcuts/{pair.id}:session:session_1/wait?after=msg_1&timeout=60"
        asked = asyncio.create_task(pair.here.get(path))
        lasting = TURN | {"reason": None, "status": "generating", "messages": []}
        await machine.answers(await machine.takes("read_turn"), lasting)
        await machine.say(Event(seq=1, event=agent_event()))
        await machine.answers(await machine.takes("read_turn"), TURN)
        assert (await asked).json()["reason"] == "idle"

    async def test_large_ones_and_large_answers(self, pair: Pair) -> None:
        """Larger than what is sent through Redis at once."""
        machine = await pair.machine_there(session(id="s1"))
        command = "echo " + "x" * 600_000
        path = f"{V1}/daemons/{pair.id}/terminal"
        asked = asyncio.create_task(pair.here.post(path, json={"command": command}))
        taken = await machine.takes("terminal", command=command)
        output = "ä" * 3_000_000
        await machine.answers(taken, _output(output))
        assert (await asked).json()["output"] == output

    async def test_many_at_once_get_each_its_own_answer(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        path = f"{V1}/daemons/{pair.id}/terminal"

        async def request(number: int) -> tuple[int, str]:
            response = await pair.here.post(path, json={"command": str(number)})
            return number, response.json()["output"]

        asked = [asyncio.create_task(request(number)) for number in range(100)]
        for _ in asked:
            taken = await machine.takes("terminal")
            await machine.answers(taken, _output(_command(taken)))
        assert all(output == str(number) for number, output in await asyncio.gather(*asked))

    async def test_a_machine_owes_no_more_answers_than_one_may(
        self, pair: Pair, nodes: tuple[Site, Site]
    ) -> None:
        """Of the commands of all nodes together; what is refused was not carried out."""
        machine = await pair.machine_there(session(id="s1"))
        path = f"{V1}/daemons/{pair.id}/terminal"
        clients = [client for site in nodes for client in many_connections(site, pair.owner.key)]
        asked = [
            asyncio.create_task(client.post(path, json={"command": "date"})) for client in clients
        ]
        taken = [await machine.takes("terminal") for _ in range(MAX_COMMANDS_IN_FLIGHT)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT)
        assert done
        for command in taken:
            await machine.answers(command)
        machine.obliges()
        for later in machine.received(Command):
            await machine.answers(later)
        responses = await asyncio.gather(*asked)
        codes = Counter([response.status_code for response in responses])
        assert codes.keys() == {200, 503}
        refused = [response for response in responses if response.status_code == 503]
        assert {response.headers["retry-after"] for response in refused} == {"1"}
        assert codes[200] >= MAX_COMMANDS_IN_FLIGHT

    async def test_a_client_that_goes_away_has_the_command_cancelled(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        asked = asyncio.create_task(pair.here.get(pair.status))
        taken = await machine.takes("agent_status")
        asked.cancel()
        assert (await machine.takes_cancel()).id == taken.id

    async def test_a_socket_that_drops_before_the_answer_is_a_503(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        asked = asyncio.create_task(pair.here.get(pair.status))
        await machine.takes("agent_status")
        await machine.drops()
        assert_error(await asked, 503)

    async def test_in_the_grace_period_503(self, patient_pair: Pair) -> None:
        machine = await patient_pair.machine_there(session(id="s1"))
        await patient_pair.shows_here(1)
        await machine.drops()
        assert_error(await patient_pair.here.get(patient_pair.status), 503)
        await patient_pair.shows_here(1)

    async def test_of_another_account_is_404(self, pair: Pair, nodes: tuple[Site, Site]) -> None:
        await pair.machine_there(session(id="s1"))
        stranger = await nodes[0].account()
        for path in (pair.status, f"{V1}/daemons/{pair.id}/status"):
            assert_error(await stranger.api.get(path), 404)
        assert (await stranger.api.get(f"{V1}/daemons")).json() == {"daemons": []}


class TestStates:
    async def test_every_node_shows_the_machine(self, pair: Pair) -> None:
        await pair.machine_there(session(id="s1"))
        await pair.shows_here(1)
        for path in (f"{V1}/daemons", f"{V1}/daemons/{pair.id}/status"):
            here, there = [(await node.get(path)).json() for node in (pair.here, pair.there)]
            assert here | {"timestamp": 0} == there | {"timestamp": 0}

    async def test_a_change_shows_on_every_node_at_once(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        await machine.say(Change(sessions=[_generating(session(id="s1"))]))

        async def shown() -> bool:
            listed = await pair.list_here()
            return bool(listed) and listed[0]["clis"][0]["status"] == "generating"

        await eventually(shown)

    async def test_after_the_grace_period_a_machine_is_offline_with_its_last_state(
        self, pair: Pair
    ) -> None:
        machine = await pair.machine_there(session(id="s1"))
        await pair.shows_here(1)
        await machine.drops()
        await pair.shows_here(0)
        assert_error(await pair.here.get(pair.status), 500)
        shown = (await pair.here.get(f"{V1}/daemons/{pair.id}/status")).json()
        assert shown["connected"] is False
        assert [item["id"] for item in shown["sessions"]] == ["s1"]


class TestSockets:
    async def test_the_newer_wins_on_whichever_node(self, pair: Pair) -> None:
        older = await pair.machine_here(session(id="s1"))
        newer = await pair.machine_there(session(id="s1"))
        assert (await older.closed())[0] == CloseCode.REPLACED
        await answered(pair, newer, pair.here)
        await answered(pair, newer, pair.there)
        assert older.received_nothing()

    async def test_of_two_at_the_same_moment_one_remains(self, pair: Pair) -> None:
        machines = await asyncio.gather(
            pair.machine_here(session(id="s1")), pair.machine_there(session(id="s1"))
        )
        ends = [asyncio.create_task(machine.closed()) for machine in machines]
        done, pending = await asyncio.wait(
            ends, return_when=asyncio.FIRST_COMPLETED, timeout=TIMEOUT
        )
        assert [task.result()[0] for task in done] == [CloseCode.REPLACED]
        (left,) = pending
        await answered(pair, machines[ends.index(left)], pair.here)
        left.cancel()

    async def test_disconnect_acts_on_every_node_at_once(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        page = await pair.dashboard()
        assert (await page.post(f"{V1}/daemons/{pair.id}/disconnect", json={})).is_success
        assert await pair.list_here() == []
        assert_error(await pair.here.get(pair.status), 500)
        assert (await machine.closed())[0] == CloseCode.DISCONNECTED

        async def gone_there() -> bool:
            listed = (await pair.there.get(f"{V1}/daemons")).json()
            return bool(listed == {"daemons": []})

        await eventually(gone_there)

    async def test_a_revocation_closes_the_socket_on_another_node(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        page = await pair.dashboard()
        assert (await page.post(f"{V1}/daemons/{pair.id}/revoke", json={})).is_success
        assert (await machine.closed())[0] == CloseCode.UNAUTHORIZED

    async def test_enrolled_again_its_old_socket_closes(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        page = await pair.dashboard()
        code = (await page.post(f"{V1}/auth/enroll/code", json={})).json()["code"]
        body = {"code": code, "hostname": "h", "platform": "linux", "daemonId": pair.id}
        response = await pair.here.post(f"{V1}/auth/enroll", json=body)
        assert response.is_success, response.text
        assert (await machine.closed())[0] == CloseCode.UNAUTHORIZED


class TestEvents:
    BOTH: ClassVar = {"machine:connected", "machine:disconnected"}

    async def test_connecting_and_disconnecting_are_one_event_each(self, pair: Pair) -> None:
        async with receiving() as receiver:
            page = await pair.dashboard()
            body = {"url": receiver.url, "events": sorted(self.BOTH)}
            assert (await page.post(f"{V1}/webhooks", json=body)).is_success
            machine = await pair.machine_there()
            await machine.drops()
            assert {item.event for item in await receiver.wait_for(2)} == self.BOTH
            await pair.machine_here()
            *_, third = await receiver.wait_for(3)
            assert third.event == "machine:connected"

    async def test_a_machine_that_reconnects_to_another_node_causes_no_event(
        self, patient_pair: Pair
    ) -> None:
        pair = patient_pair
        async with receiving() as receiver:
            page = await pair.dashboard()
            body = {"url": receiver.url, "events": sorted(self.BOTH)}
            assert (await page.post(f"{V1}/webhooks", json=body)).is_success
            machine = await pair.machine_there()
            await machine.drops()
            await pair.machine_here()
            # Disconnecting has no grace period.
            assert (await page.post(f"{V1}/daemons/{pair.id}/disconnect", json={})).is_success
            assert {item.event for item in await receiver.wait_for(2)} == self.BOTH
            await pair.machine_there()
            *_, third = await receiver.wait_for(3)
            assert third.event == "machine:connected"


class TestShared:
    async def test_a_revoked_key_ends_everywhere_within_a_second(self, pair: Pair) -> None:
        assert (await pair.there.get(f"{V1}/daemons")).is_success
        page = await pair.dashboard()
        (key,) = (await page.get(f"{V1}/account")).json()["keys"]
        assert (await page.delete(f"{V1}/account/keys/{key['id']}")).is_success

        async def refused() -> bool:
            return (await pair.there.get(f"{V1}/daemons")).status_code == 401

        await eventually(refused)

    async def test_a_rate_limit_holds_across_nodes(
        self, tmp_path: Path, postgresql: PostgreSQL
    ) -> None:
        shared = settings(tmp_path / "one", postgresql, secret_key="k" * 32, rate_limit_key=10)
        sites = [Site(shared), Site(shared.model_copy(update={"data_dir": tmp_path / "two"}))]
        for site in sites:
            await site.start()
        try:
            while True:  # until no minute ends between the requests
                minute = time.time() // 60
                owner = await sites[0].account()
                clients = [site.client(owner.key) for site in sites]
                codes = [(await clients[n % 2].get(f"{V1}/daemons")).status_code for n in range(12)]
                if time.time() // 60 == minute:
                    break
        finally:
            for site in sites:
                await site.close()
        assert codes == [200] * 10 + [429] * 2

    async def test_a_logout_ends_the_session_on_every_node(self, pair: Pair) -> None:
        page = await pair.dashboard()
        there = pair.other.client(page.headers["authorization"].removeprefix("Bearer "))
        assert (await there.get(f"{V1}/account")).is_success
        assert (await page.post(f"{V1}/auth/logout", json={})).is_success
        assert_error(await there.get(f"{V1}/account"), 401, "AUTH_INVALID")

    async def test_an_idempotency_key_holds_on_every_node(self, pair: Pair) -> None:
        machine = await pair.machine_there(session(id="s1"))
        path, key = f"{V1}/daemons/{pair.id}/terminal", {"Idempotency-Key": "once"}
        asked = [
            asyncio.create_task(client.post(path, json={"command": "date"}, headers=key))
            for client in (pair.here, pair.there)
        ]
        await machine.answers(await machine.takes("terminal"))
        codes = sorted([(await request).status_code for request in asked])
        assert codes[0] == 200
        assert codes[1] in (200, 409)  # a replay, or it came while the first was under way
        assert machine.received_nothing()
        again = await pair.there.post(path, json={"command": "date"}, headers=key)
        assert again.headers["idempotency-replayed"] == "true"


def _generating(running: Session) -> Session:
    running.status = "generating"
    return running


def _output(output: str) -> dict[str, Any]:
    return RESULTS[CommandType.TERMINAL] | {"output": output}


def _command(taken: Command) -> str:
    command: str = payload_of(taken)["command"]
    return command
