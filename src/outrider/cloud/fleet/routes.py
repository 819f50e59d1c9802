"""The way from the node that has a request to the node that has the machine's socket.

A node listens on the channel of each machine whose socket it has, so the number of those who
hear a command tells whether any node has it. Answers come back on the asking node's channel,
which the command's id names: whichever node the machine answers to knows where they belong.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol

import msgspec
import structlog

from outrider.cloud.fleet.bus import Bus, BusDown, Hear
from outrider.contract.frames import (
    MAX_COMMANDS_IN_FLIGHT,
    Cancel,
    CloseCode,
    Command,
    CommandResult,
    Failure,
    decode_from_daemon,
    decode_from_service,
    encode,
)
from outrider.contract.ids import new_id

_LOOK_SECONDS: Final = 1.0
"""How often it is asked whether a node still has the machines that owe an answer."""

_LOST_AFTER: Final = 2
"""Looks in a row that find no node with the machine: one may fall into a move."""

_TELLS: Final = 5
_TELL_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


class Socket(Protocol):
    """This node's end of a machine's connection."""

    async def send(self, frame: Command | Cancel) -> None:
        """Send a frame. Waits while the machine takes none.

        Raises:
            ConnectionError: the socket has gone.
        """


class Ended(Protocol):
    """Told by another node that a machine's socket is to be closed here."""

    def __call__(
        self, machine_id: str, code: CloseCode, reason: str, connection: int | None
    ) -> None:
        """Close it. With `connection`, only if it is an older one than that."""


class _Carry(msgspec.Struct, tag="carry", array_like=True, frozen=True):
    """To the machine's node: send it this frame."""

    frame: bytes


class _End(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """To the machine's node: close its socket. With `connection`, an older one only."""

    code: int
    reason: str
    connection: int | None


class _Answer(msgspec.Struct, tag="answer", array_like=True, frozen=True):
    """To the asking node: the machine's answer."""

    machine: str
    frame: bytes


class _Lost(msgspec.Struct, tag="lost", array_like=True, frozen=True):
    """To the asking node: the machine's socket has gone before its answer."""

    machine: str


_Message = _Carry | _End | _Answer | _Lost
_decoder: msgspec.msgpack.Decoder[_Message] = msgspec.msgpack.Decoder(_Message)
_encode: Final = msgspec.msgpack.Encoder().encode
_LOOK: Final = b""
"""A message that says nothing: how many hear it is all that is asked."""


class _Held:
    """A machine's socket here, and the commands that it owes an answer to, by their ids."""

    __slots__ = ("connection", "hear", "owed", "socket")

    def __init__(self, socket: Socket, connection: int, hear: Hear) -> None:
        self.socket = socket
        self.connection = connection
        self.hear = hear
        self.owed: set[str] = set()


class Routes:
    """Carries commands to machines, wherever their sockets are, and answers back."""

    def __init__(self, bus: Bus) -> None:
        self.node = secrets.token_hex(6)
        self._bus = bus
        self._answered: Callable[[str, CommandResult], None]
        self._lost: Callable[[str], None]
        self._ended: Ended
        self._held: dict[str, _Held] = {}
        self._asked: dict[str, tuple[str, float]] = {}
        self._missing: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(
        self,
        *,
        answered: Callable[[str, CommandResult], None],
        lost: Callable[[str], None],
        ended: Ended,
    ) -> None:
        """Have told what comes of commands, and what other nodes say.

        Args:
            answered: takes a machine's answer to a command of this node.
            lost: told that a machine will not answer what this node has asked.
            ended: told that a machine's socket is to be closed here.
        """
        self._answered = answered
        self._lost = lost
        self._ended = ended

    def new_command_id(self) -> str:
        """Return an id for a command; answers to it find their way to this node."""
        return f"{new_id('cmd')}@{self.node}"

    async def hold(self, machine_id: str, socket: Socket, connection: int) -> None:
        """Take it that this socket leads to the machine, and no older one on any node."""
        older = self._held.get(machine_id)
        hear = older.hear if older is not None else partial(self._hear_machine, machine_id)
        held = self._held[machine_id] = _Held(socket, connection, hear)
        if older is not None:
            await self._tell_lost(machine_id, older)
        elif self._bus.is_shared:
            await self._bus.listen(machine_id, held.hear)
        if self._bus.is_shared:
            await self._claim(machine_id, connection)

    async def release(self, machine_id: str, socket: Socket, *, has_moved: bool) -> None:
        """Forget the socket, unless a newer one has taken its place.

        Args:
            has_moved: the machine has another one by now, which its answers will come on.
        """
        held = self._held.get(machine_id)
        if held is None or held.socket is not socket:
            return
        del self._held[machine_id]
        if self._bus.is_shared:
            await self._bus.unlisten(machine_id, held.hear)
        if not has_moved:
            await self._tell_lost(machine_id, held)

    async def send(self, machine_id: str, frame: Command | Cancel) -> bool:
        """Send a frame to a machine; False where no socket on any node leads to it.

        Raises:
            BusDown: none does here, and other nodes cannot be asked.
        """
        held = self._held.get(machine_id)
        if isinstance(frame, Command) and self._bus.is_shared:
            self._asked[frame.id] = (machine_id, time.monotonic())
        if held is not None:
            if isinstance(frame, Command):
                held.owed.add(frame.id)
            return await _send(held.socket, frame)
        if not self._bus.is_shared:
            return False
        if not self._bus.is_up:
            raise BusDown("An answer would not be heard")
        return await self._bus.publish(machine_id, _encode(_Carry(encode(frame)))) > 0

    def owed(self, machine_id: str) -> int:
        """Return how many commands, of whatever node, a machine that is held here has unanswered.

        Of one that is held elsewhere its own node keeps count, and refuses what is too much.
        """
        held = self._held.get(machine_id)
        return 0 if held is None else len(held.owed)

    def settled(self, machine_id: str, command_id: str) -> None:
        """Take it that nothing is owed for a command of this node any more."""
        self._asked.pop(command_id, None)
        held = self._held.get(machine_id)
        if held is not None:
            held.owed.discard(command_id)

    async def answer(self, machine_id: str, result: CommandResult) -> None:
        """Take a machine's answer to the node that asked."""
        held = self._held.get(machine_id)
        if held is not None:
            held.owed.discard(result.id)
        node = _node_of(result.id)
        if node == self.node:
            self._answered(machine_id, result)
        elif node and self._bus.is_shared:
            await self._tell(node, _Answer(machine_id, encode(result)))

    async def end(self, machine_id: str, code: CloseCode, reason: str) -> None:
        """Have the machine's socket closed, wherever it is."""
        if self._bus.is_shared and machine_id not in self._held:
            await self._publish(machine_id, _End(code, reason, None))

    async def run(self) -> None:
        """Hear other nodes, and look after what they owe, until cancelled."""
        if not self._bus.is_shared:
            return
        await self._bus.listen(_channel(self.node), self._hear_node)
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                await self._look()
        finally:
            await self._bus.unlisten(_channel(self.node), self._hear_node)
            for task in self._tasks:
                task.cancel()

    def down(self) -> None:
        """Take it that messages may have been lost: what other nodes owe will not come."""
        for machine_id in {machine for machine, _ in self._asked.values()} - self._held.keys():
            self._lost(machine_id)

    async def _look(self) -> None:
        """Give up on machines that no node has any more: theirs may have been killed."""
        before = time.monotonic() - _LOOK_SECONDS
        owing = {machine for machine, at in self._asked.values() if at < before}
        owing -= self._held.keys()
        for gone in self._missing.keys() - owing:
            del self._missing[gone]
        for machine_id in owing:
            try:
                hears = await self._bus.publish(machine_id, _LOOK)
            except BusDown:
                return
            self._missing[machine_id] = 0 if hears else self._missing[machine_id] + 1
            if self._missing[machine_id] >= _LOST_AFTER:
                self._lost(machine_id)

    def _hear_machine(self, machine_id: str, data: bytes) -> None:
        if data == _LOOK:
            return
        match _decoder.decode(data):
            case _Carry(frame):
                self._begin(self._carry(machine_id, frame))
            case _End(code, reason, connection):
                held = self._held.get(machine_id)
                if connection is None or held is None or held.connection < connection:
                    self._ended(machine_id, CloseCode(code), reason, connection)
                elif held.connection > connection:  # it did not hear when this one came
                    self._begin(self._claim(machine_id, held.connection))

    def _hear_node(self, data: bytes) -> None:
        match _decoder.decode(data):
            case _Answer(machine, frame):
                result = decode_from_daemon(frame)
                if isinstance(result, CommandResult):
                    self._answered(machine, result)
            case _Lost(machine):
                self._lost(machine)

    async def _carry(self, machine_id: str, data: bytes) -> None:
        """Send on what another node has for a machine that is held here."""
        frame = decode_from_service(data)
        held = self._held.get(machine_id)
        if isinstance(frame, Cancel):
            if held is not None:
                held.owed.discard(frame.id)
                await _send(held.socket, frame)
        elif isinstance(frame, Command):
            if held is not None and len(held.owed) >= MAX_COMMANDS_IN_FLIGHT:
                await self._refuse(machine_id, frame)
                return
            if held is not None:  # else it has just moved: its new node has heard this too
                held.owed.add(frame.id)
                await _send(held.socket, frame)  # where that fails, `release` tells the loss

    async def _refuse(self, machine_id: str, command: Command) -> None:
        message = f"{MAX_COMMANDS_IN_FLIGHT} commands of this machine are unanswered already"
        result = CommandResult(id=command.id, error=Failure(status=500, message=message))
        await self.answer(machine_id, result)

    async def _claim(self, machine_id: str, connection: int) -> None:
        """Have the machine's older sockets closed, wherever they are."""
        reason = "A newer connection of this machine took over"
        await self._publish(machine_id, _End(CloseCode.REPLACED, reason, connection))

    async def _tell_lost(self, machine_id: str, held: _Held) -> None:
        for node in {_node_of(command_id) for command_id in held.owed} - {self.node}:
            await self._tell(node, _Lost(machine_id))

    async def _tell(self, node: str, message: _Answer | _Lost) -> None:
        """Tell a node what it waits for; while the bus is down here, it may be up there."""
        if not await self._publish(_channel(node), message):
            self._begin(self._tell_later(node, message))

    async def _tell_later(self, node: str, message: _Answer | _Lost) -> None:
        for _ in range(_TELLS):
            await asyncio.sleep(_TELL_SECONDS)
            if await self._publish(_channel(node), message):
                return

    async def _publish(self, channel: str, message: _Message) -> bool:
        """Publish what nobody can be told about if it fails; tell whether it did not.

        Once the bus is back every node compares its sockets with the database.
        """
        try:
            await self._bus.publish(channel, _encode(message))
        except BusDown as error:
            _log.warning("not told to the other nodes", channel=channel, error=str(error))
            return False
        return True

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="carry")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _send(socket: Socket, frame: Command | Cancel) -> bool:
    try:
        await socket.send(frame)
    except ConnectionError:
        return False
    return True


def _channel(node: str) -> str:
    return f"node {node}"


def _node_of(command_id: str) -> str:
    node = command_id.rpartition("@")[2]
    return node if len(node) == 12 and node.isalnum() else ""  # as `token_hex(6)`
