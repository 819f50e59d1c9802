"""Waiting for an agent: what is asked of the machine, and when the wait ends.

Holds docs/waiting.md. Whether a turn is over is the machine's: tests/machine/agents.
"""

import asyncio
import re
from typing import Any

import httpx
import pytest

from outrider.contract.errors import ErrorDetail
from outrider.contract.events import EventName
from outrider.contract.frames import Command, Event, Failure
from outrider.service.agents.waiting import MAX_WAITS
from tests.conftest import StartSite
from tests.rig.errors import assert_error, paths
from tests.rig.machine import ScriptedMachine, payload_of
from tests.rig.samples import CHAT, TURN, session
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.events import agent_event

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

GENERATING = TURN | {"reason": None, "cursor": "msg_1", "status": "generating", "messages": []}


def path(machine: ScriptedMachine, query: str = "", target: str = "session:session_1") -> str:
    return f"/api/v1/shortcuts/{machine.id}:{target}/wait?{query}"


def body(**changes: Any) -> dict[str, Any]:
    """Return the response that follows from `TURN`."""
    names = ("reason", "cursor", "status", "messages", "pendingAction")
    return {name: TURN[name] for name in names} | changes


def event(seq: int, name: EventName = EventName.GENERATING_COMPLETED) -> Event:
    return Event(seq=seq, event=agent_event(name))


async def reads(machine: ScriptedMachine, result: dict[str, Any] = GENERATING) -> dict[str, Any]:
    """Answer the next read of the turn; return what was asked."""
    taken = await machine.takes("read_turn")
    await machine.answers(taken, result)
    asked: dict[str, Any] = payload_of(taken)
    return asked


async def waits(owner: Owner) -> int:
    """Return how many requests wait on the node."""
    found = re.search(
        r"^outrider_waits (\d+)", (await owner.api.get("/metrics")).text, re.MULTILINE
    )
    assert found is not None
    return int(found[1])


class TestStates:
    async def test_a_state_that_fits_is_returned_at_once(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine))
        asked = await reads(machine, TURN)
        assert asked["target"] == f"{machine.id}:session:session_1"
        assert asked["until"] == ["idle", "waiting_approval", "error"]
        assert asked["after"] is None
        assert (await request).json() == body()

    async def test_the_end_of_a_turn_is_read_after_an_event(self, owner: Owner) -> None:
        machine = await owner.machine()
        query = "after=msg_1&until=error,idle&timeout=60"
        request = owner.sends("GET", path(machine, query, "cli:claude-code"))
        first = await reads(machine)
        assert (first["after"], first["until"]) == ("msg_1", ["idle", "error"])
        await machine.say(event(1))
        later = await reads(machine)  # of another agent
        assert later["sessionId"] == "session_1"  # now by id: another may be the latest
        assert later["target"] is None
        await machine.say(event(2))
        await reads(machine, TURN)
        assert (await request).json() == body()

    async def test_a_timeout_has_the_messages_so_far(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "after=msg_1&timeout=1"))
        assert (await reads(machine))["unfinished"] is True
        so_far = GENERATING | {"messages": CHAT["messages"], "cursor": "msg_1~msg_2"}
        machine.obliges(read_turn=so_far)
        assert (await request).json() == body(
            reason="timeout",
            cursor="msg_1~msg_2",
            status="generating",
        )

    async def test_without_time_the_present_state(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "timeout=0"))
        await reads(machine)
        assert (await request).json()["reason"] == "timeout"
        assert machine.received_nothing()

    async def test_without_time_a_machine_that_hangs_is_not_waited_for(self, owner: Owner) -> None:
        """The command timeout of 60 s is longer than the tests wait."""
        machine = await owner.machine(session(id="session_1", status="generating"))
        request = owner.sends("GET", path(machine, "timeout=0&after=msg_1"))
        taken: Command = await machine.takes("read_turn")
        async with asyncio.timeout(TIMEOUT):
            assert (await request).json() == body(
                reason="timeout", cursor="msg_1", status="generating", messages=[]
            )
        assert (await machine.takes_cancel()).id == taken.id

    async def test_a_session_that_ends(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "timeout=60"))
        await reads(machine)
        await machine.say(event(1))
        taken = await machine.takes("read_turn")
        await machine.fails(taken, Failure(status=404, message="no session 'session_1'"))
        assert (await request).json() == body(
            reason="ended", cursor="msg_1", status="generating", messages=[]
        )


class TestOffline:
    async def test_a_machine_that_goes_offline(self, start_site: StartSite) -> None:
        """Only after its grace period, as its status says."""
        owner = await (await start_site(grace_period=0.1)).account()
        machine = await owner.machine(session(id="session_1", status="generating"))
        request = owner.sends("GET", path(machine, "timeout=60&after=msg_1"))
        await reads(machine)
        await machine.drops()
        assert (await request).json() == body(
            reason="offline", cursor="msg_1", status="generating", messages=[]
        )

    @pytest.mark.parametrize("target", ["session:session_1", "cli:claude-code"])
    async def test_a_machine_that_is_offline(self, start_site: StartSite, target: str) -> None:
        owner = await (await start_site(grace_period=0.01)).account()
        machine = await owner.machine(session(id="session_1"))
        await machine.drops()

        async def offline() -> bool:
            shown = await owner.api.get(f"/api/v1/daemons/{machine.id}/status")
            return shown.json()["connected"] is False

        await eventually(offline)
        response = await owner.api.get(path(machine, "timeout=60", target))
        assert response.json() == body(reason="offline", cursor=None, messages=[])
        response = await owner.api.get(path(machine, "after=msg_1", "session:session_9"))
        assert response.json() == body(reason="offline", cursor="msg_1", status=None, messages=[])

    async def test_a_connection_that_drops_and_comes_back(self, owner: Owner) -> None:
        enrolled = await owner.enrolls()
        machine = await owner.machine(session(id="session_1"), enrolled=enrolled)
        request = owner.sends("GET", path(machine, "timeout=60"))
        await reads(machine)
        await machine.drops()
        again = await owner.machine(session(id="session_1"), enrolled=enrolled)
        await again.say(event(1))
        await reads(again, TURN)
        assert (await request).json() == body()

    async def test_a_drop_that_outlasts_the_wait(self, owner: Owner) -> None:
        machine = await owner.machine(session(id="session_1"))
        await machine.drops()
        response = await owner.api.get(path(machine, "timeout=1"))
        assert response.json() == body(reason="timeout", cursor=None, messages=[])


class TestErrors:
    @pytest.mark.parametrize(
        ("query", "blamed"),
        [
            ("until=", "until"),
            ("until=idle,done", "until"),
            ("until=idle,", "until"),
            ("until=generating", "until"),
            ("timeout=-1", "timeout"),
            ("timeout=61", "timeout"),
            ("timeout=soon", "timeout"),
            ("after=", "after"),
            ("agentType=", "agentType"),
        ],
    )
    async def test_bad_queries(self, owner: Owner, query: str, blamed: str) -> None:
        machine = await owner.machine()
        assert paths(await owner.api.get(path(machine, query))) == [blamed]
        assert machine.received_nothing()

    @pytest.mark.parametrize(
        "failure",
        [
            Failure(
                status=400,
                message="'msg_9' is no cursor of this session",
                details=[ErrorDetail(path="after", message="no cursor")],
            ),
            Failure(status=404, message="This machine has no session 'session_1'"),
            Failure(status=409, message="The message was taken back from the queue"),
        ],
    )
    async def test_what_the_machine_refuses(self, owner: Owner, failure: Failure) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "after=msg_9"))
        await machine.fails(await machine.takes("read_turn"), failure)
        error = assert_error(await request, failure.status)
        assert error["error"] == failure.message

    async def test_a_message_that_is_taken_back_while_it_is_waited_for(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "after=msg_1"))
        await reads(machine)
        await machine.say(event(1))
        failure = Failure(status=409, message="The message was taken back from the queue")
        await machine.fails(await machine.takes("read_turn"), failure)
        assert_error(await request, 409)

    async def test_as_many_waits_as_a_credential_may_have(self, owner: Owner) -> None:
        machine = await owner.machine()
        clients = [owner.site.client(owner.key) for _ in range(2)]
        tasks = [
            asyncio.create_task(clients[i % 2].get(path(machine, "timeout=60")))
            for i in range(MAX_WAITS)
        ]
        for _ in tasks:
            await reads(machine)
        response = await owner.api.get(path(machine))
        assert_error(response, 429, "RATE_LIMITED")
        assert response.headers["retry-after"] == "1"
        another = (await owner.may("agent:read")).get(path(machine, "timeout=0"))
        allowed = asyncio.create_task(another)
        await reads(machine)
        assert (await allowed).status_code == 200
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=TIMEOUT)
        await eventually(lambda: none_waits(owner))


async def none_waits(owner: Owner) -> bool:
    return await waits(owner) == 0


class TestEnds:
    async def test_a_client_that_goes_away_ends_the_wait(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "timeout=60"))
        await reads(machine)
        assert await waits(owner) == 1
        request.cancel()
        await eventually(lambda: none_waits(owner))
        await machine.say(event(1))
        await machine.settled()
        assert machine.received_nothing()

    async def test_a_client_that_goes_away_during_a_read_cancels_it(self, owner: Owner) -> None:
        machine = await owner.machine()
        request = owner.sends("GET", path(machine, "timeout=60"))
        taken: Command = await machine.takes("read_turn")
        request.cancel()
        assert (await machine.takes_cancel()).id == taken.id
        await eventually(lambda: none_waits(owner))

    async def test_a_node_that_drains_ends_the_wait_early(self, start_site: StartSite) -> None:
        site = await start_site()
        owner = await site.account()
        machine = await owner.machine(session(id="session_1"))
        async with httpx.AsyncClient(
            base_url=site.url,
            headers={"Authorization": f"Bearer {owner.key}"},
            trust_env=False,
            timeout=TIMEOUT,
        ) as client:
            request = asyncio.create_task(client.get(path(machine, "timeout=60&after=msg_1")))
            await reads(machine)
            stopping = asyncio.create_task(site.stop())
            response = await request
            await stopping
        assert response.status_code == 200
        assert (response.json()["reason"], response.json()["cursor"]) == ("timeout", "msg_1")
