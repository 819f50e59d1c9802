"""The gateway, where something happens to a connection while the gateway waits for something else.

No service is run: the sockets are played to the gateway, and the tests say when it goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import pytest
import pytest_asyncio
from sqlalchemy import insert
from starlette.types import Message, Scope

from outrider.contract.events import EventName
from outrider.contract.frames import (
    FromService,
    WatchDeltas,
    Welcome,
    decode_from_service,
    encode,
)
from outrider.contract.ids import new_id
from outrider.contract.link.terminals import Open
from outrider.service.accounts.credentials import digest
from outrider.service.cluster.bus import Bus as NodeBus
from outrider.service.cluster.bus import MessageHandler
from outrider.service.cluster.directory import FleetDirectory
from outrider.service.cluster.relay import CommandRelay
from outrider.service.cluster.transport import Transport
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.events.log import Event
from outrider.service.http.client_address import Addresses
from outrider.service.machines.gateway import Gateway
from outrider.service.machines.handshakes import Handshakes
from outrider.service.machines.machine_state import MachineState
from outrider.service.machines.presence import Presence
from outrider.service.machines.sockets import MachineSockets
from outrider.service.machines.store import machines
from outrider.service.terminals.streams import LocalTerminals, TerminalStream
from outrider.service.webhooks.store.deliveries import Delivery
from tests.rig.machine import hello
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

ACCOUNT, MACHINE, TOKEN = new_id("acct"), new_id("machine"), "omt_secret"
SCOPE: Scope = {"type": "websocket", "headers": [(b"authorization", f"Bearer {TOKEN}".encode())]}
FrameT = TypeVar("FrameT", bound=FromService)


class Bus(NodeBus):
    """A bus that confirms the machine's channel once `may_subscribe` is set."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.may_subscribe = asyncio.Event()
        self.may_subscribe.set()
        self.is_subscribing = False

    async def subscribe(self, channel: str, handler: MessageHandler) -> None:
        """Call `handler` with each message of the channel."""
        await super().subscribe(channel, handler)
        if channel == MACHINE:
            self.is_subscribing = True
            await self.may_subscribe.wait()


class Announced:
    """An event of the machine; its name is noted once it is stored."""

    def __init__(self, announced: list[EventName], name: EventName) -> None:
        self.event = Event(new_id("evt"), ACCOUNT, name, b"{}", 0)
        self.deliveries: Sequence[Delivery] = ()
        self._announced = announced
        self._name = name

    def stored(self) -> None:
        self._announced.append(self._name)


class Socket:
    """A machine's socket, on which it has said hello. It can be written to while `is_read`."""

    def __init__(self) -> None:
        self.is_read = asyncio.Event()
        self.is_read.set()
        self.closed_with: int | None = None
        self._sent: list[FromService] = []
        self._coming: asyncio.Queue[Message] = asyncio.Queue()
        self._coming.put_nowait({"type": "websocket.connect"})
        greeting = encode(hello(terminals=True)).decode()
        self._coming.put_nowait({"type": "websocket.receive", "text": greeting})

    async def receive(self) -> Message:
        return await self._coming.get()

    async def send(self, message: Message) -> None:
        await self.is_read.wait()
        if message["type"] == "websocket.close":
            self.closed_with = message["code"]
            self.hang_up()
        elif message.get("text") is not None:
            frame = decode_from_service(message["text"])
            assert frame is not None
            self._sent.append(frame)

    def hang_up(self) -> None:
        self._coming.put_nowait({"type": "websocket.disconnect"})

    def frames(self, kind: type[FrameT]) -> list[FrameT]:
        return [frame for frame in self._sent if isinstance(frame, kind)]

    def is_welcome(self) -> bool:
        return bool(self.frames(Welcome))


class Node:
    """A gateway with what it needs, and a machine that may connect to it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.bus = Bus()
        self.announced: list[EventName] = []
        self.may_announce = asyncio.Event()
        self.may_announce.set()
        self.is_announcing = False
        self.presence = Presence(
            database=database,
            directory=FleetDirectory(self.bus, database),
            node="here",
            grace_period=30,
            announce=self._announce,
        )
        transport = Transport(self.bus)
        self.relay = CommandRelay(transport, lambda *_: None)
        self.terminals = LocalTerminals()
        self.sockets = MachineSockets(database, self.presence, self.relay, self.terminals)
        self.gateway = Gateway(
            database=database,
            presence=self.presence,
            relay=self.relay,
            terminals=self.terminals,
            sockets=self.sockets,
            owner_of=self._owner_of,
            handshakes=Handshakes(Addresses([], limit_loopback=False), 1000),
            take_event=self._take_event,
            note_refusal=lambda *_: None,
            take_delta=lambda *_: None,
        )
        self._serving: list[asyncio.Task[None]] = []
        self._sockets: list[Socket] = []

    def connect(self) -> tuple[Socket, asyncio.Task[None]]:
        """Connect the machine; return its socket, and the task that serves it."""
        socket = Socket()
        serving = asyncio.create_task(self.gateway(SCOPE, socket.receive, socket.send))
        self._serving.append(serving)
        self._sockets.append(socket)
        return socket, serving

    async def row(self) -> machines.Machine:
        found = await machines.by_id(self.database, MACHINE)
        assert found is not None
        return found

    async def close(self) -> None:
        for socket in self._sockets:
            socket.hang_up()
        await asyncio.wait(self._serving, timeout=TIMEOUT)
        await self.presence.close()

    async def _owner_of(self, token: str) -> tuple[machines.Machine, bytes]:
        return await self.row(), digest(token)

    async def _announce(self, name: EventName, state: MachineState) -> Announced:
        if name is EventName.MACHINE_CONNECTED:
            self.is_announcing = True
            await self.may_announce.wait()
        return Announced(self.announced, name)

    async def _take_event(self, *_: object, **__: object) -> None:
        raise AssertionError("the machine sends no events")


@pytest_asyncio.fixture(loop_scope="session")
async def node(database: Database) -> AsyncIterator[Node]:
    async with database.begin() as transaction:
        await transaction.execute(
            insert(tables.accounts).values(id=ACCOUNT, plan="free", created_at=0)
        )
        await transaction.execute(
            insert(tables.machines).values(
                id=MACHINE,
                account_id=ACCOUNT,
                token_hash=digest(TOKEN),
                created_at=0,
                connected=False,
                nickname="n",
                hostname="h",
                platform="linux",
                version="0",
            )
        )
    made = Node(database)
    yield made
    await made.close()


async def test_a_request_for_deltas_waits_until_the_machine_reads(node: Node) -> None:
    """Nobody repeats it."""
    socket, _ = node.connect()
    await eventually(socket.is_welcome)
    socket.is_read.clear()
    node.sockets.watch_deltas(MACHINE, None)
    node.sockets.watch_deltas(MACHINE, [])
    assert socket.frames(WatchDeltas) == []
    socket.is_read.set()
    await eventually(lambda: len(socket.frames(WatchDeltas)) == 2)
    assert [frame.sessions for frame in socket.frames(WatchDeltas)] == [None, []]


async def test_no_request_for_deltas_comes_before_the_welcome(node: Node) -> None:
    """The machine would close the connection: its first frame must be a welcome."""
    node.may_announce.clear()
    socket, _ = node.connect()
    await eventually(lambda: node.is_announcing)
    node.sockets.watch_deltas(MACHINE, [])
    node.may_announce.set()
    await eventually(socket.is_welcome)
    assert socket.frames(WatchDeltas) == []


async def test_a_replaced_connection_leaves_the_terminals_of_its_successor(node: Node) -> None:
    """It was replaced while it waited for the bus, after its welcome."""
    node.bus.may_subscribe.clear()
    older, serving_older = node.connect()
    await eventually(lambda: node.bus.is_subscribing)
    newer, _ = node.connect()
    await eventually(newer.is_welcome)
    assert older.closed_with == 4409
    node.bus.may_subscribe.set()
    async with asyncio.timeout(TIMEOUT):
        await serving_older
    line = node.terminals.open(MACHINE, Open(name="build"), TerminalStream())
    assert line is not None


class TestDisconnectedDuringItsRegistration:
    """`POST …/disconnect` while the machine's hello is being stored."""

    async def test_it_does_not_stay_connected(self, node: Node) -> None:
        serving = await self._disconnected(node)
        node.may_announce.set()
        async with asyncio.timeout(TIMEOUT):
            await serving
        assert not (await node.row()).connected
        assert await node.presence.of_account(ACCOUNT) == []
        assert node.announced == [EventName.MACHINE_CONNECTED, EventName.MACHINE_DISCONNECTED]

    async def test_it_stays_connected_if_it_is_back_by_then(self, node: Node) -> None:
        serving = await self._disconnected(node)
        newer, _ = node.connect()
        # Its hello has arrived: it is the machine's state here.
        await eventually(lambda: node.presence.local(MACHINE) is not None)
        node.may_announce.set()
        async with asyncio.timeout(TIMEOUT):
            await serving
        await eventually(newer.is_welcome)
        assert (await node.row()).connected
        (state,) = await node.presence.of_account(ACCOUNT)
        assert state.online
        assert node.announced == [EventName.MACHINE_CONNECTED]

    async def _disconnected(self, node: Node) -> asyncio.Task[None]:
        """Return the task that serves a connection which was closed before it was stored."""
        node.may_announce.clear()
        socket, serving = node.connect()
        await eventually(lambda: node.is_announcing)
        state = node.presence.local(MACHINE)
        assert state is not None
        await node.sockets.disconnect(state)
        assert socket.closed_with == 4403
        return serving
