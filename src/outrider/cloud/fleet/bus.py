"""The way from the node that has a request to the node that has the machine's socket."""

from typing import Protocol

from outrider.contract.frames import Cancel, Command


class Socket(Protocol):
    """The service's end of a machine's connection."""

    async def send(self, frame: Command | Cancel) -> None:
        """Send a frame. Waits while the machine takes none.

        Raises:
            ConnectionError: the socket has gone.
        """


class MemoryBus:
    """The bus of a single node: every socket is here."""

    def __init__(self) -> None:
        self._sockets: dict[str, Socket] = {}

    def hold(self, machine_id: str, socket: Socket) -> None:
        """Take it that this socket leads to the machine, and no other."""
        self._sockets[machine_id] = socket

    def release(self, machine_id: str, socket: Socket) -> None:
        """Forget the socket, unless a newer one has taken its place."""
        if self._sockets.get(machine_id) is socket:
            del self._sockets[machine_id]

    async def send(self, machine_id: str, frame: Command | Cancel) -> bool:
        """Send a frame to a machine; False where no socket leads to it."""
        socket = self._sockets.get(machine_id)
        if socket is None:
            return False
        try:
            await socket.send(frame)
        except ConnectionError:
            return False
        return True
