"""The way to the service: one connection after the other, until told to stop or refused.

A service that is about to stop asks its machines to move. The next connection is made before
the old one goes: from its welcome on everything goes out over the new one, while the old one is
read on until the service closes it. docs/protocol.md describes what goes over a connection.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import structlog
from websockets.exceptions import ConnectionClosed

from outrider import __version__
from outrider.contract.frames import (
    PROTOCOL_VERSION,
    Acknowledge,
    Cancel,
    CloseCode,
    Command,
    DecodeError,
    Goodbye,
    Hello,
    Noted,
    Snapshot,
)
from outrider.contract.limits import fitted
from outrider.contract.resources import Provider
from outrider.daemon.backoff import Backoff
from outrider.daemon.channel import Channel, Pace
from outrider.daemon.outgoing import Outgoing
from outrider.daemon.router import Router
from outrider.daemon.settings import Connection

_log = structlog.get_logger(__name__)


class Link:
    """Keeps this machine connected.

    Args:
        connection: where to, and as whom.
        outgoing: what is to be told.
        router: carries out the service's commands.
        snapshot: returns everything that runs on the machine now.
        on_connected: called after each welcome.
        sleep, chance: how to wait between attempts, and how to vary that wait (0 to 1).
    """

    def __init__(
        self,
        connection: Connection,
        *,
        outgoing: Outgoing,
        router: Router,
        snapshot: Callable[[], Snapshot],
        pace: Pace | None = None,
        on_connected: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._on_connected = on_connected
        self._connection = connection
        self._outgoing = outgoing
        self._router = router
        self._snapshot = snapshot
        self._pace = pace or Pace()
        self._sleep = sleep
        self._chance = chance
        self._backoff = Backoff(chance)
        self._span: float | None = None
        self._welcomed_at: float | None = None
        self._providers: list[Provider] = []
        self._current: Channel | None = None
        self._open: set[Channel] = set()
        self._lingering: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        """Held while frames go out, and from a hello to its welcome: none goes out meanwhile."""
        self._log = _log.bind(server=connection.server)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop` is set; then say goodbye.

        Raises:
            LinkRefusedError: the service refuses this machine permanently.
        """
        stopping = asyncio.create_task(stop.wait(), name="link stop")
        staying = asyncio.create_task(self._stay(), name="link")
        try:
            await asyncio.wait({stopping, staying}, return_when=asyncio.FIRST_COMPLETED)
            if staying.done():
                staying.result()
        finally:
            await _cancel(stopping, staying, *self._lingering)
            if self._current is not None:
                await self._current.say_goodbye()
            self._forget_current()
            await asyncio.gather(*(self._close(channel) for channel in list(self._open)))

    async def _stay(self) -> None:
        """Serve one connection after the other."""
        channel = await self._connect()
        while True:
            channel = await self._serve(channel or await self._connect_later())

    async def _serve(self, channel: Channel) -> Channel | None:
        """Carry frames both ways; return the connection that takes over, None after a loss."""
        moving = asyncio.create_task(self._move(channel), name="link move")
        carrying = (
            asyncio.create_task(self._read(channel), name="link read"),
            asyncio.create_task(self._send(channel), name="link send"),
            asyncio.create_task(self._report(), name="link report"),
        )
        try:
            await asyncio.wait({moving, *carrying}, return_when=asyncio.FIRST_COMPLETED)
            await _cancel(*carrying)
            async with self._turn:  # a hello elsewhere that is on its way may yet be answered
                moved = self._current is not channel
                if not moved:
                    self._forget_current()
            if moved:
                self._linger(channel)
            else:
                await self._close(channel, *channel.ended(_error(carrying)))
            return await moving if channel.to_move.is_set() else None
        finally:
            await _cancel(moving, *carrying)

    # The next connection

    async def _move(self, channel: Channel) -> Channel:
        """Make the next connection once the service asks for it."""
        await channel.to_move.wait()
        self._span = channel.span
        return await self._connect_later()

    async def _connect_later(self) -> Channel:
        """Return the next connection, tried for until there is one."""
        while True:
            wait = self._next_wait()
            self._log.info("connecting again", in_seconds=round(wait, 1))
            await self._sleep(wait)
            channel = await self._connect()
            if channel is not None:
                return channel

    def _next_wait(self) -> float:
        """Return the seconds until the next attempt: all of them chance, so that no two meet."""
        span, self._span = self._span, None
        welcomed_at, self._welcomed_at = self._welcomed_at, None
        if welcomed_at is not None and _now() - welcomed_at >= self._pace.stable_after:
            self._backoff.reset()
        return self._backoff.next() if span is None else span * self._chance()

    async def _connect(self) -> Channel | None:
        """Return a connection on which this machine is welcome, the current one from here on."""
        channel = await Channel.open(self._connection, self._pace)
        if channel is None:
            return None
        self._open.add(channel)
        try:
            await self._greet(channel)
        except (ConnectionClosed, DecodeError, TimeoutError) as error:
            self._span = channel.span
            await self._close(channel, *channel.ended(error))
            return None
        finally:
            if self._current is None:
                self._outgoing.end()
        return channel

    async def _greet(self, channel: Channel) -> None:
        async with self._turn:
            now = self._outgoing.begin(self._snapshot)
            if self._current is not None:
                self._current.may_be_replaced = True
            welcome = await channel.welcome(
                Hello(
                    protocol=PROTOCOL_VERSION,
                    version=__version__,
                    machine=now.machine,
                    providers=now.providers,
                    sessions=now.sessions,
                    last_event=self._outgoing.last_event(),
                )
            )
            self._outgoing.resume(welcome.acknowledged)
            self._current = channel
        self._providers = now.providers
        self._welcomed_at = _now()
        self._log.info("connected", daemon=welcome.daemon_id, service=welcome.version)
        self._on_connected()

    # What goes over a connection

    async def _read(self, channel: Channel) -> None:
        while True:
            match await channel.receive():
                case Command() as command:
                    self._router.submit(command, self._outgoing.result)
                case Cancel(id=command_id):
                    self._router.cancel(command_id)
                case Acknowledge(seq=seq):
                    self._outgoing.acknowledged(seq)
                case Noted(seq=seq):
                    self._outgoing.noted(seq)
                case Goodbye() as goodbye:
                    channel.heard(goodbye)

    async def _send(self, channel: Channel) -> None:
        while True:
            await self._outgoing.wait()
            async with self._turn:
                if self._current is not channel:
                    return
                for frame in self._outgoing.take():
                    await channel.send(frame)

    async def _report(self) -> None:
        """Tell the machine's figures from time to time, and providers that came or went."""
        while True:
            await asyncio.sleep(self._pace.report_interval)
            now = fitted(self._snapshot())
            if now.providers == self._providers:
                self._outgoing.machine(now.machine)
            else:
                self._providers = now.providers
                self._outgoing.snapshot(self._snapshot)

    # The end of a connection

    def _forget_current(self) -> None:
        """Note that what was under way over the current connection is lost."""
        self._current = None
        self._outgoing.end()
        self._router.cancel_all()

    def _linger(self, channel: Channel) -> None:
        task = asyncio.create_task(self._read_on(channel), name="link linger")
        self._lingering.add(task)
        task.add_done_callback(self._lingering.discard)

    async def _read_on(self, channel: Channel) -> None:
        """Read what still comes over a connection that another one took over from."""
        try:
            async with asyncio.timeout(self._pace.linger):
                await self._read(channel)
        except (ConnectionClosed, DecodeError, TimeoutError) as error:
            self._log.info("the older connection is left", reason=str(error))
        await self._close(channel, CloseCode.GOING_AWAY, "This machine has a newer connection")

    async def _close(
        self,
        channel: Channel,
        code: CloseCode = CloseCode.GOING_AWAY,
        reason: str = "The machine agent stops",
    ) -> None:
        self._open.discard(channel)
        await channel.close(code, reason)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _error(tasks: Iterable[asyncio.Task[None]]) -> BaseException | None:
    """Return what the first of these tasks that failed has raised."""
    errors = (task.exception() for task in tasks if not task.cancelled())
    return next((error for error in errors if error is not None), None)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    """End tasks and wait for their end, whatever that is."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # it has been seen
