"""A real HAProxy with a configuration of deploy/, and a name server in place of Docker's."""

import asyncio
import os
import re
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from tests.servers.server import Server, program

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_NODE_LINE: Final = "    server node1 127.0.0.1:8400\n"
_ROOT_ONLY: Final = re.compile(r"^ +(user|group|chroot) .*\n", re.MULTILINE)


class HAProxy(Server):
    """HAProxy in front of these nodes (host and port), which listen on one port.

    Args:
        resolver: the name server that knows the nodes as `node`; with it, the configuration is the
            one for Docker.
    """

    name = "haproxy"

    def __init__(
        self, nodes: Sequence[tuple[str, int]], resolver: tuple[str, int] | None = None
    ) -> None:
        self._program = program("haproxy", "haproxy", Path("/usr/sbin"))
        super().__init__()
        self.url = f"http://127.0.0.1:{self.port}"
        config = self.directory / "haproxy.cfg"
        config.write_text(self._for_docker(nodes, resolver) if resolver else self._plain(nodes))

    @property
    def command(self) -> Sequence[str]:
        """The proxy itself, in the foreground."""
        return [str(self._program), "-W", "-f", str(self.directory / "haproxy.cfg")]

    def is_ready(self) -> bool:
        """Tell whether it accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _plain(self, nodes: Sequence[tuple[str, int]]) -> str:
        lines = [
            f"    server node{number} {host}:{port}\n" for number, (host, port) in enumerate(nodes)
        ]
        text = self._file("haproxy.cfg", {_NODE_LINE: "".join(lines)})
        return text if os.geteuid() == 0 else _ROOT_ONLY.sub("", text)

    def _for_docker(self, nodes: Sequence[tuple[str, int]], resolver: tuple[str, int]) -> str:
        changes = {
            "node:8400": f"node:{nodes[0][1]}",
            "127.0.0.11:53": "{}:{}".format(*resolver),
        }
        return self._file("haproxy.docker.cfg", changes)

    def _file(self, name: str, changes: dict[str, str]) -> str:
        text = (_DEPLOY / name).read_text()
        for old, new in {"bind :8080": f"bind 127.0.0.1:{self.port}", **changes}.items():
            assert old in text
            text = text.replace(old, new)
        return text


class _Names(asyncio.DatagramProtocol):
    """Answers every question for an A record with these addresses, all others with none."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, client: tuple[str, int]) -> None:
        end = data.index(0, 12) + 5  # the name, its type and class
        (kind,) = struct.unpack_from(">H", data, end - 4)
        addresses = self._addresses if kind == 1 else ()
        header = data[:2] + struct.pack(">5H", 0x8180, 1, len(addresses), 0, 0)
        records = (
            struct.pack(">3HIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address)
            for address in addresses
        )
        self._transport.sendto(header + data[12:end] + b"".join(records), client)


@asynccontextmanager
async def name_server(addresses: Sequence[str]) -> AsyncIterator[tuple[str, int]]:
    """Run a name server to which any name has these addresses; give its own address."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Names(addresses), local_addr=("127.0.0.1", 0)
    )
    try:
        yield transport.get_extra_info("sockname")
    finally:
        transport.close()
