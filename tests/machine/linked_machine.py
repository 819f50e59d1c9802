"""A machine agent's link, with sessions and handlers that a test chooses, and whom it talks to."""

import asyncio

import msgspec
import pytest

from outrider.contract.commands import CommandType
from outrider.contract.frames import PROTOCOL_VERSION, Command, Snapshot, Welcome
from outrider.contract.link.outbox import Outbox
from outrider.contract.resources import Provider, Session
from outrider.machine.commands.router import Handler, Router
from outrider.machine.facts import describe_machine
from outrider.machine.link.connection import Link, LinkRefusedError, SocketTiming
from outrider.machine.link.journal import Journal
from outrider.machine.settings import Connection
from outrider.machine.terminals.live import LiveTerminals
from tests.machine.scripted_service import Peer, ScriptedService
from tests.rig.waiting import TIMEOUT

TOKEN = "omt_secret-of-this-machine"


class Machine:
    """A machine agent's link; it waits between attempts only while `woken` is not set."""

    def __init__(self, url: str, journal: Journal) -> None:
        self.sessions: dict[str, Session] = {}
        self.providers: list[Provider] = []
        self.handlers: dict[CommandType, Handler] = {}
        self.terminals: LiveTerminals | None = None
        self.waits: list[float] = []
        self.woken = asyncio.Event()
        self.woken.set()
        self.outbox = Outbox(journal)
        self.router = Router(self.handlers)
        self.stop = asyncio.Event()
        self.url = url
        self.running: asyncio.Task[None] | None = None

    def start(self, timing: SocketTiming | None = None) -> None:
        link = Link(
            Connection(server=self.url, daemon_id="machine_1", token=TOKEN, nickname="box"),
            outbox=self.outbox,
            router=self.router,
            snapshot=lambda: Snapshot(
                machine=describe_machine(),
                providers=self.providers,
                sessions=list(self.sessions.values()),
            ),
            terminals=self.terminals,
            timing=timing,
            sleep=self._sleep,
            random_fraction=lambda: 0.5,
        )
        self.running = asyncio.create_task(link.run(self.stop))

    def change(self, changed: Session) -> None:
        self.sessions[changed.id] = changed
        self.outbox.session_changed(changed)

    def welcome(self) -> Welcome:
        """Return the frame that welcomes this machine."""
        return Welcome(
            protocol=PROTOCOL_VERSION, version="1", daemon_id="machine_1", nickname="box"
        )

    async def refused(self) -> LinkRefusedError:
        assert self.running is not None
        with pytest.raises(LinkRefusedError) as caught:
            async with asyncio.timeout(TIMEOUT):
                await self.running
        return caught.value

    async def close(self) -> None:
        self.stop.set()
        if self.running is not None:
            _, pending = await asyncio.wait({self.running}, timeout=TIMEOUT)
            assert not pending, "the link did not stop"
        await self.router.close(within=5)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)
        await self.woken.wait()


async def connected(
    machine: Machine, service: ScriptedService, timing: SocketTiming | None = None
) -> Peer:
    machine.start(timing)
    peer = await service.connection()
    await peer.welcome()
    return peer


def status_query(name: str) -> Command:
    return Command(id=name, command="agent_status", payload=msgspec.Raw(b"{}"), timeout_ms=10_000)
