"""From a machine's events, and its comings and goings, to deliveries.

Holds docs/webhooks.md, "Subscribe".
"""

from typing import Any

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import text

from outrider.contract.enrollment import Enrolled
from outrider.contract.events import (
    NEGOTIATED_EVENTS,
    Answer,
    ChatMessage,
    EventName,
    QueueEntry,
    Respondent,
)
from outrider.contract.frames import Acknowledge, Event
from outrider.contract.resources import ActionOption, Control, PendingAction, Session
from outrider.service.machines.store import machines
from tests.rig.machine import ScriptedMachine
from tests.rig.site import Site
from tests.rig.waiting import eventually
from tests.service.webhooks.events import agent_event
from tests.service.webhooks.receiver import Receiver
from tests.service.webhooks.test_subscriptions import Subscriber, subscriber

pytestmark = pytest.mark.asyncio(loop_scope="session")


comes_back_in_time = pytest.mark.parametrize("mine", [1.5], indirect=True)
"""With a grace period in which machines come back also where the computer is busy."""


@pytest_asyncio.fixture(loop_scope="session")
async def mine(request: pytest.FixtureRequest, start_site: Any) -> Site:
    """A service of the test's own, with a short grace period."""
    site: Site = await start_site(grace_period=getattr(request, "param", 0.1))
    return site


@pytest_asyncio.fixture(loop_scope="session")
async def me(mine: Site) -> Subscriber:
    return await subscriber(mine)


async def acknowledged(machine: ScriptedMachine, seq: int) -> None:
    """Wait until a machine's events up to `seq` are acknowledged."""

    def is_acknowledged() -> bool:
        return any(item.seq >= seq for item in machine.received(Acknowledge))

    await eventually(is_acknowledged)


async def stored_seq(site: Site, machine_id: str) -> int:
    row = await machines.by_id(site.database, machine_id)
    assert row is not None
    return row.event_seq


async def connects(me: Subscriber, enrolled: Enrolled) -> ScriptedMachine:
    return await me.owner.machine(enrolled=enrolled)


async def came_and_went(me: Subscriber, receiver: Receiver, already: int) -> str:
    """Connect another machine, drop it, and return its id once its grace period is over.

    The grace periods that began earlier have ended by then.

    Args:
        already: how many deliveries have come so far; no more than the machine's two may come.
    """
    machine = await me.owner.machine()
    await receiver.wait_for(already + 1)
    await machine.drops()
    *_, went = await receiver.wait_for(already + 2)
    assert (went.event, went.json["daemonId"]) == ("machine:disconnected", machine.id)
    return machine.id


async def test_a_machine_that_comes_and_goes(me: Subscriber, receiver: Receiver) -> None:
    await me.create_webhook(receiver.url, "machine:connected", "machine:disconnected")
    enrolled = await me.owner.enrolls(nickname="Bench")
    machine = await connects(me, enrolled)
    (came,) = await receiver.wait_for(1)
    await machine.drops()
    _, went = await receiver.wait_for(2)
    assert [came.event, went.event] == ["machine:connected", "machine:disconnected"]
    for taken in (came, went):
        body = taken.json
        assert body.keys() == {"id", "event", "timestamp", "daemonId", "payload"}
        assert body["daemonId"] == enrolled.daemon_id
        assert body["payload"] == {
            "hostname": "workbench",
            "nickname": "Bench",
            "platform": "linux",
            "timestamp": body["timestamp"],
        }


@comes_back_in_time
async def test_within_the_grace_period_nothing_fires(
    me: Subscriber, mine: Site, receiver: Receiver
) -> None:
    await me.create_webhook(receiver.url, "machine:connected", "machine:disconnected")
    enrolled = await me.owner.enrolls()
    machine = await connects(me, enrolled)
    for _ in range(3):
        await machine.drops()
        machine = await connects(me, enrolled)
    newer = await connects(me, enrolled)  # takes over from the older one
    other = await came_and_went(me, receiver, already=1)  # a grace period later
    ours = [request for request in receiver.requests if request.json["daemonId"] != other]
    assert [item.event for item in ours] == ["machine:connected"]
    await newer.drops()
    await receiver.wait_for(4)
    await connects(me, enrolled)
    events = [request.event for request in (await receiver.wait_for(5))[3:]]
    assert events == ["machine:disconnected", "machine:connected"]


@comes_back_in_time
async def test_over_a_restart_of_the_service(
    me: Subscriber, mine: Site, receiver: Receiver
) -> None:
    """Who comes back within the grace period fires nothing; who does not, once."""
    await me.create_webhook(receiver.url, "machine:connected", "machine:disconnected")
    stays, goes = await me.owner.enrolls(), await me.owner.enrolls()
    for enrolled in (stays, goes):
        await connects(me, enrolled)
    await receiver.wait_for(2)
    await mine.stop()
    await mine.start()
    await connects(me, stays)
    *_, went = await receiver.wait_for(3)
    assert (went.event, went.json["daemonId"]) == ("machine:disconnected", goes.daemon_id)
    await came_and_went(me, receiver, already=3)  # the grace period of the other one is over


async def test_disconnect_fires_at_once(me: Subscriber, receiver: Receiver) -> None:
    """The grace period is for machines that are lost, not for those that are disconnected."""
    await me.create_webhook(receiver.url, "machine:disconnected")
    machine = await me.owner.machine()
    await me.api.post(f"/api/v1/daemons/{machine.id}/disconnect")
    (went,) = await receiver.wait_for(1)
    assert went.event == "machine:disconnected"


async def test_each_event_once_however_often_it_is_sent(me: Subscriber, receiver: Receiver) -> None:
    """The same number again, and the same id under a new number: both are dropped."""
    await me.create_webhook(receiver.url, "agent:generating_started")
    enrolled = await me.owner.enrolls()
    machine = await connects(me, enrolled)
    first, second, third = agent_event(), agent_event(), agent_event()
    await machine.say(
        Event(seq=1, event=first),
        Event(seq=1, event=first),
        Event(seq=2, event=second),
        Event(seq=3, event=first),
    )
    await acknowledged(machine, 3)
    await machine.say(Event(seq=2, event=second), Event(seq=4, event=second))
    await acknowledged(machine, 4)
    await machine.drops()
    again = await connects(me, enrolled)
    assert again.welcome.acknowledged == 4
    await again.say(Event(seq=4, event=second), Event(seq=5, event=third))
    await acknowledged(again, 5)
    taken = await receiver.wait_for(3)
    assert sorted(request.json["id"] for request in taken) == sorted(
        [first.id, second.id, third.id]
    )


async def test_what_is_no_event_of_an_agent_is_dropped(
    me: Subscriber, mine: Site, receiver: Receiver
) -> None:
    """A machine cannot tell machine:* or webhook:test, nor give ids that are none."""
    await me.create_webhook(receiver.url, "*")
    machine = await me.owner.machine()
    await receiver.wait_for(1)
    events = [
        agent_event(EventName.MACHINE_DISCONNECTED),
        agent_event(EventName.WEBHOOK_TEST),
        agent_event(id="evt_short"),
        agent_event(id="x" * 64),
        agent_event(id="webhook_01jz3v7k2qf8ar4n0w5h6xt9cd"),
    ]
    sound = agent_event()
    for seq, event in enumerate([*events, sound], start=1):
        await machine.say(Event(seq=seq, event=event))
    await acknowledged(machine, 6)
    _, taken = await receiver.wait_for(2)
    assert taken.json["id"] == sound.id
    assert await stored_seq(mine, machine.id) == 6


SESSION = Session(
    id="session_1",
    target_id="machine_other:session:session_1",
    kind="cli",
    type="claude-code",
    name="Claude Code",
    status="idle",
    created_at=1,
    last_activity_at=2,
)
ACTION = PendingAction(
    id="act_1",
    message="Edit it?",
    options=[ActionOption(id="yes", label="Yes", kind="allow_once")],
)
MESSAGE = ChatMessage(id="msg_1", index=0, role="user", kind="text", content="Hello", timestamp=3)
CONTROLS = [Control(id="mode", label="Mode", type="select", options=["a", "b"], value="a")]
WAITING = [QueueEntry(message_id="msg_2", text="And now?", created_at=4)]
BY = Respondent(kind="key", id="key_1", name="Laptop")
ANSWER = Answer(action="approve", option_id="yes", by=BY)


async def test_the_further_events_of_a_machine(me: Subscriber, receiver: Receiver) -> None:
    """docs/webhooks.md: what each has in its payload. One without it is dropped."""
    machine = await me.owner.machine()
    assert set(machine.welcome.events) == NEGOTIATED_EVENTS
    await me.create_webhook(receiver.url, "*")
    contents: dict[EventName, dict[str, Any]] = {
        EventName.SESSION_STARTED: {"session": SESSION},
        EventName.SESSION_UPDATED: {"session": SESSION, "controls": CONTROLS},
        EventName.CHAT_MESSAGE: {"chat_message": MESSAGE},
        EventName.APPROVAL_OPENED: {"action": ACTION},
        EventName.APPROVAL_RESOLVED: {"action": ACTION, "answer": ANSWER},
        EventName.QUEUE_CHANGED: {"queue": WAITING},
        EventName.SESSION_ENDED: {"session": SESSION},
    }
    assert contents.keys() == NEGOTIATED_EVENTS
    for name, fields in contents.items():
        await me.report_event(machine, name=name)
        await me.report_event(machine, name=name, **fields)
    taken = {request.event: request.json for request in await receiver.wait_for(len(contents))}
    assert set(taken) == set(contents)
    for body in taken.values():
        assert body["targetId"] == f"{machine.id}:session:session_1"
        assert body["sessionId"] == body["payload"]["sessionId"] == "session_1"
    payloads = {name: body["payload"] for name, body in taken.items()}
    mine = {"id": "session_1", "targetId": f"{machine.id}:session:session_1", "status": "idle"}
    for event in ("session:started", "session:updated", "session:ended"):
        assert mine.items() <= payloads[event]["session"].items()
    assert payloads["session:updated"]["controls"] == msgspec.to_builtins(CONTROLS)
    assert payloads["chat:message"]["message"] == msgspec.to_builtins(MESSAGE)
    assert payloads["approval:opened"]["action"] == msgspec.to_builtins(ACTION)
    resolved = payloads["approval:resolved"]
    assert resolved["action"] == msgspec.to_builtins(ACTION)
    assert (resolved["resolution"], resolved["optionId"]) == ("approve", "yes")
    assert resolved["answeredBy"] == {"kind": "key", "id": "key_1", "name": "Laptop"}
    assert payloads["queue:changed"]["messages"] == msgspec.to_builtins(WAITING)


async def test_nothing_is_acknowledged_before_it_is_stored(
    me: Subscriber, mine: Site, receiver: Receiver
) -> None:
    """While the database takes no writes, nothing is acknowledged, and a service that is killed
    then receives it again: a dropped event is not acknowledged before those ahead of it either."""
    await me.create_webhook(receiver.url, "agent:generating_started")
    enrolled = await me.owner.enrolls()
    machine = await connects(me, enrolled)
    event = agent_event()
    async with mine.database.begin() as connection:  # for SQLite it is the lock on the file
        if connection.dialect == "postgresql":
            await connection.execute(text("LOCK TABLE events, deliveries, machines"))
        await machine.say(
            Event(seq=1, event=event), Event(seq=2, event=agent_event(EventName.WEBHOOK_TEST))
        )
        await machine.settled()
        assert machine.received(Acknowledge) == []
    await acknowledged(machine, 2)
    assert [request.json["id"] for request in await receiver.wait_for(1)] == [event.id]


async def test_events_wait_while_nobody_subscribes_to_them(
    me: Subscriber, mine: Site, receiver: Receiver
) -> None:
    """An event that no webhook wants is acknowledged all the same."""
    machine = await me.owner.machine()
    await machine.say(Event(seq=1, event=agent_event()))
    await acknowledged(machine, 1)
    assert await stored_seq(mine, machine.id) == 1
    webhook = await me.create_webhook(receiver.url)
    await machine.say(Event(seq=2, event=agent_event()))
    await receiver.wait_for(1)
    assert len(await me.wait_for_deliveries(webhook)) == 1
