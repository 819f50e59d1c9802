"""A private Redis."""

import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Self

from tests.servers.server import TIMEOUT, Server, free_port, program, until

_DATABASES: Final = 10_000


class Redis(Server):
    """Redis, which keeps nothing on disk: started again it is empty.

    Args:
        options: what is to be otherwise in `redis.conf`.
    """

    name = "redis"

    def __init__(self, **options: str) -> None:
        self._program = program("redis-server", "redis-server")
        self._options = {name.replace("_", "-"): value for name, value in options.items()}
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
            **self._options,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [str(self._program), *words]

    def is_ready(self) -> bool:
        """Return whether the server answers a PING."""
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


class RedisCluster:
    """Three servers of Redis that share the keys. As a context it is started, and then gone."""

    def __init__(self) -> None:
        self._servers = [
            Redis(cluster_enabled="yes", cluster_port=str(free_port()), databases="1")
            for _ in range(3)
        ]
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for server in self._servers:
                starting.enter_context(server)
            addresses = [f"127.0.0.1:{server.port}" for server in self._servers]
            subprocess.run(
                ["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT,
                check=True,
            )
            until(lambda: all(map(_agrees, self._servers)))
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def url(self) -> str:
        """Return the address of one of its servers, as `OUTRIDER_REDIS_URL` takes it."""
        return f"redis+cluster://127.0.0.1:{self._servers[0].port}"


def _agrees(server: Redis) -> bool:
    """Return whether a server knows of every key whose it is."""
    info = subprocess.run(
        ["redis-cli", "-p", str(server.port), "cluster", "info"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    ).stdout
    return "cluster_state:ok" in info and "cluster_known_nodes:3" in info
