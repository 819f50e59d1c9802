"""A private Redis."""

import socket
from collections.abc import Sequence
from typing import Final

from servers.server import Server, program

_DATABASES: Final = 10_000


class Redis(Server):
    """Redis, which keeps nothing on disk: started again it is empty."""

    name = "redis"

    def __init__(self) -> None:
        self._program = program("redis-server", "redis-server")
        super().__init__()

    @property
    def command(self) -> Sequence[str]:
        """The server itself, in the foreground."""
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no",
            "databases": str(_DATABASES),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [str(self._program), *words]

    def is_ready(self) -> bool:
        """Tell whether the server answers a PING."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16) == b"+PONG\r\n"
        except OSError:
            return False

    def url(self, database: int = 0) -> str:
        """Return the address of one of its databases, as `OUTRIDER_REDIS_URL` takes it.

        Args:
            database: below 10,000. Databases share the channels of publish/subscribe.
        """
        return f"redis://127.0.0.1:{self.port}/{database}"
