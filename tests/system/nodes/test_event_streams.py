"""An event stream on one node, the machine on another. Holds docs/events.md."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from outrider.contract.frames import Delta, Event, WatchDeltas
from tests.rig.errors import assert_error
from tests.rig.event_stream import PATH, STREAM, event_stream
from tests.rig.machine import ScriptedMachine
from tests.rig.site import Site
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.events import agent_event
from tests.system.nodes.pair import Pair

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def report(machine: ScriptedMachine, *numbers: int) -> list[str]:
    """Have a machine report events with these numbers; return their ids."""
    events = [Event(seq=number, event=agent_event()) for number in numbers]
    await machine.say(*events)
    return [frame.event.id for frame in events]


def is_asked(machine: ScriptedMachine, times: int = 1) -> bool:
    """Whether the machine was asked for deltas so often, and was not told to stop since."""
    asked = machine.received(WatchDeltas)
    return len(asked) == times and asked[-1].sessions is None


async def test_events_of_a_machine_on_another_node(pair: Pair) -> None:
    async with event_stream(pair.here) as here, event_stream(pair.there) as there:
        await here.next()
        await there.next()
        machine = await pair.machine_there()
        ids = await report(machine, 1, 2)
        for stream in (here, there):
            connected, *events = await stream.events(3)
            assert connected.event == "machine:connected"
            assert [event.data["id"] for event in events] == ids


async def test_deltas_of_a_machine_on_another_node(pair: Pair) -> None:
    machine = await pair.machine_there()
    delta = Delta(session_id="session_1", message_id="m", revision=0, op="append", text="Hi")
    target = f"{pair.id}:session:session_1"
    async with event_stream(pair.here, deltas="true", target=target) as here:
        await here.next()
        await eventually(lambda: is_asked(machine))
        await machine.say(delta)
        frame = await here.next()
        assert (frame.event, frame.id) == ("chat:delta", None)
        assert frame.data == {
            "targetId": target,
            "messageId": "m",
            "revision": 0,
            "op": "append",
            "text": "Hi",
        }
        async with event_stream(pair.there, deltas="true") as there:
            await there.next()
            await eventually(lambda: is_asked(machine, 2))  # for what the new one has missed
            await machine.say(
                Delta(session_id="session_2", message_id="m", revision=0, op="append", text="no"),
                Delta(session_id="session_1", message_id="m", revision=1, op="replace", text="Hi!"),
            )
            assert (await here.next()).data["text"] == "Hi!"
            assert [frame.data["text"] for frame in await there.events(2)] == ["no", "Hi!"]
    await eventually(lambda: machine.received(WatchDeltas)[-1].sessions == [])


async def test_nobody_gets_another_account_s_deltas(pair: Pair, nodes: tuple[Site, Site]) -> None:
    """Although both accounts have a stream for deltas on the node."""
    machine = await pair.machine_there()
    stranger = await nodes[0].account()
    other = await (await stranger.site.account()).machine()
    delta = Delta(session_id="session_1", message_id="m", revision=0, op="append", text="Hi")
    async with (
        event_stream(pair.here, deltas="true") as mine,
        event_stream(stranger.api, deltas="true") as theirs,
    ):
        await mine.next()
        await theirs.next()
        await eventually(lambda: is_asked(machine))
        await machine.say(delta)
        await mine.next()
        own = await stranger.machine()
        assert (await theirs.next()).data["daemonId"] == own.id
    assert not other.received(WatchDeltas)


async def test_at_most_ten_streams_of_a_credential_on_all_nodes(pair: Pair) -> None:
    async with AsyncExitStack() as streams:
        clients = [
            await streams.enter_async_context(event_stream(client))
            for client in [pair.here, pair.there] * 5
        ]
        for client in clients:
            await client.next()
        for refusing in (pair.here, pair.there):
            refused = await refusing.get(PATH, headers=STREAM)
            assert_error(refused, 429, "STREAM_LIMIT")
            assert int(refused.headers["retry-after"]) > 0

    async def has_room() -> bool:
        async with event_stream(pair.there) as stream:
            return stream.response.status_code == 200

    await eventually(has_room)


@pytest_asyncio.fixture(loop_scope="session")
async def third(
    nodes: tuple[Site, Site], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """One more node, which a test may stop."""
    directory = tmp_path_factory.mktemp("third")
    site = Site(nodes[0].settings.model_copy(update={"data_dir": directory, "drain_delay": 0}))
    await site.start()
    yield site
    await site.close()


async def test_a_client_of_a_node_that_drains_resumes_at_another(pair: Pair, third: Site) -> None:
    machine = await pair.machine_there()
    sent = await report(machine, *range(1, 11))
    stopping = asyncio.Event()

    async def keep_reporting() -> None:
        number = 11
        while not stopping.is_set() or number < 50:
            sent.extend(await report(machine, number))
            number += 1
            await asyncio.sleep(0.002)

    reporting = asyncio.create_task(keep_reporting())
    async with event_stream(third.client(pair.owner.key), "0", events="agent:*") as stream:
        await stream.events(15)
        stop = asyncio.create_task(third.stop())
        end = await stream.until("stream:end")
        assert end.data["reason"] == "draining"
        assert end.data["retryAfterMs"] > 0
        assert await stream.ended()
        events = [frame for frame in stream.frames if frame.id]
    cursor = events[-1].id
    seen = [event.data["id"] for event in events]
    stopping.set()
    async with asyncio.timeout(TIMEOUT):
        await stop
        await reporting
    async with event_stream(pair.here, cursor, events="agent:*") as stream:
        assert (await stream.next()).data["resume"] == "ok"
        seen += [event.data["id"] for event in await stream.events(len(sent) - len(seen))]
    assert seen == sent
