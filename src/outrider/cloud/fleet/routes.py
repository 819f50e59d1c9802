"""The way from the node that has a request to the node that has the machine's socket.

A node listens on the channel of each machine whose socket it has, so the number of those who
hear a command tells whether any node has it. Answers come back on the asking node's channel,
which the command's id names: whichever node the machine answers to knows where they belong.

A node may die, or freeze, and the answers that its machines owe with it. So every second each
node tells the others which of their commands its machines still owe an answer to; one that
nobody tells of for long will not be answered.
"""

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol

import structlog

from outrider.cloud.fleet import messages
from outrider.cloud.fleet.bus import Bus, BusDown, Hear
from outrider.cloud.fleet.messages import Answer, Carry, End, Inherit, Lost, Message, Owing
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

_REMIND_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 5.0
"""After this, a command that no node tells of is lost."""

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


class _Held:
    """A machine's socket here, and the commands that it owes an answer to, by their ids."""

    __slots__ = ("connection", "hear", "owed", "owed_before", "socket")

    def __init__(self, socket: Socket, connection: int, hear: Hear) -> None:
        self.socket = socket
        self.connection = connection
        self.hear = hear
        self.owed: set[str] = set()
        self.owed_before: frozenset[str] = frozenset()
        """Those of a second ago. Most are answered by then, and nobody need be told of them."""


class _Asked:
    """A command of this node that is not answered; `heard_at` is when it was last told of."""

    __slots__ = ("heard_at", "machine")

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.heard_at = time.monotonic()


class Routes:
    """Carries commands to machines, wherever their sockets are, and answers back."""

    def __init__(self, bus: Bus) -> None:
        self.node = secrets.token_hex(6)
        self._bus = bus
        self._answered: Callable[[str, CommandResult], None]
        self._lost: Callable[[str], None]
        self._forgotten: Callable[[str], None]
        self._ended: Ended
        self._held: dict[str, _Held] = {}
        self._asked: dict[str, _Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(
        self,
        *,
        answered: Callable[[str, CommandResult], None],
        lost: Callable[[str], None],
        forgotten: Callable[[str], None],
        ended: Ended,
    ) -> None:
        """Have told what comes of commands, and what other nodes say.

        Args:
            answered: takes a machine's answer to a command of this node.
            lost: told that a machine will not answer what this node has asked.
            forgotten: told that a command, by its id, will not be answered.
            ended: told that a machine's socket is to be closed here.
        """
        self._answered = answered
        self._lost = lost
        self._forgotten = forgotten
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
        elif held.owed and self._bus.is_shared:
            await self._publish(machine_id, Inherit(list(held.owed)))

    async def send(self, machine_id: str, frame: Command | Cancel) -> bool:
        """Send a frame to a machine; False where no socket on any node leads to it.

        Raises:
            BusDown: none does here, and other nodes cannot be asked.
        """
        held = self._held.get(machine_id)
        if isinstance(frame, Command) and self._bus.is_shared:
            self._asked[frame.id] = _Asked(machine_id)
        if held is not None:
            if isinstance(frame, Command):
                held.owed.add(frame.id)
            return await _send(held.socket, frame)
        if not self._bus.is_shared:
            return False
        if not self._bus.is_up:
            raise BusDown("An answer would not be heard")
        return await self._bus.publish(machine_id, messages.encode(Carry(encode(frame)))) > 0

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
            await self._tell(node, Answer(machine_id, encode(result)))

    async def end(self, machine_id: str, code: CloseCode, reason: str) -> None:
        """Have the machine's socket closed, wherever it is."""
        if self._bus.is_shared and machine_id not in self._held:
            await self._publish(machine_id, End(code, reason, None))

    async def run(self) -> None:
        """Hear other nodes, and look after what they owe, until cancelled."""
        if not self._bus.is_shared:
            return
        await self._bus.listen(_channel(self.node), self._hear_node)
        try:
            while True:
                await asyncio.sleep(_REMIND_SECONDS)
                await self._remind()
                self._give_up()
        finally:
            await self._bus.unlisten(_channel(self.node), self._hear_node)
            for task in self._tasks:
                task.cancel()

    def down(self) -> None:
        """Take it that messages may have been lost: what other nodes owe will not come."""
        for command_id, asked in list(self._asked.items()):
            if asked.machine not in self._held:
                self._forgotten(command_id)

    async def _remind(self) -> None:
        """Tell the other nodes which of their commands are not answered yet."""
        owing: defaultdict[str, list[str]] = defaultdict(list)
        for held in self._held.values():
            if not held.owed and not held.owed_before:
                continue
            for command_id in held.owed & held.owed_before:
                owing[_node_of(command_id)].append(command_id)
            held.owed_before = frozenset(held.owed)
        self._hear_owing(owing.pop(self.node, []))
        for node, commands in owing.items():
            await self._publish(_channel(node), Owing(commands))

    def _give_up(self) -> None:
        """Have the commands of this node forgotten that nobody tells of."""
        before = time.monotonic() - _SILENT_SECONDS
        for command_id, asked in list(self._asked.items()):
            if asked.heard_at < before:
                self._forgotten(command_id)

    def _hear_owing(self, commands: list[str]) -> None:
        now = time.monotonic()
        for command_id in commands:
            asked = self._asked.get(command_id)
            if asked is not None:
                asked.heard_at = now

    def _hear_machine(self, machine_id: str, data: bytes) -> None:
        held = self._held.get(machine_id)
        match messages.decode(data):
            case Carry(frame):
                self._begin(self._carry(machine_id, frame))
            case Inherit(commands):
                if held is not None:
                    held.owed.update(commands)
            case End(code, reason, connection):
                if connection is None or held is None or held.connection < connection:
                    self._ended(machine_id, CloseCode(code), reason, connection)
                elif held.connection > connection:  # it did not hear when this one came
                    self._begin(self._claim(machine_id, held.connection))

    def _hear_node(self, data: bytes) -> None:
        match messages.decode(data):
            case Answer(machine, frame):
                result = decode_from_daemon(frame)
                if isinstance(result, CommandResult):
                    self._answered(machine, result)
            case Lost(machine):
                self._lost(machine)
            case Owing(commands):
                self._hear_owing(commands)

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
        result = CommandResult(id=command.id, error=Failure(status=503, message=message))
        await self.answer(machine_id, result)

    async def _claim(self, machine_id: str, connection: int) -> None:
        """Have the machine's older sockets closed, wherever they are."""
        reason = "A newer connection of this machine took over"
        await self._publish(machine_id, End(CloseCode.REPLACED, reason, connection))

    async def _tell_lost(self, machine_id: str, held: _Held) -> None:
        for node in {_node_of(command_id) for command_id in held.owed} - {self.node}:
            await self._tell(node, Lost(machine_id))

    async def _tell(self, node: str, message: Answer | Lost) -> None:
        """Tell a node what it waits for; while the bus is down here, it may be up there."""
        if not await self._publish(_channel(node), message):
            self._begin(self._tell_later(node, message))

    async def _tell_later(self, node: str, message: Answer | Lost) -> None:
        for _ in range(_TELLS):
            await asyncio.sleep(_TELL_SECONDS)
            if await self._publish(_channel(node), message):
                return

    async def _publish(self, channel: str, message: Message) -> bool:
        """Publish what nobody can be told about if it fails; tell whether it did not.

        Once the bus is back every node compares its sockets with the database.
        """
        try:
            await self._bus.publish(channel, messages.encode(message))
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
