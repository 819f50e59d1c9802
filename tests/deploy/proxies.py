"""The real proxies with the configurations of deploy/, and a name server in place of Docker's."""

import asyncio
import os
import re
import socket
import struct
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from tests.servers.server import Server, free_port, program

Node = tuple[str, int]

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_NAME: Final = "outrider.example.com"
_ROOT_ONLY: Final = re.compile(r"^ +(user|group|chroot) .*\n", re.MULTILINE)


class Proxy(Server):
    """A proxy that serves https in front of these nodes (host and port).

    Args:
        certificate: the files of the certificate and its key.
    """

    def __init__(self, nodes: Sequence[Node], certificate: tuple[Path, Path]) -> None:
        self.program = program(self.name, self.name, Path("/usr/sbin"))
        super().__init__()
        self.url = f"https://127.0.0.1:{self.port}"
        self.config = self.directory / "config"
        self.config.write_text(self.configuration(nodes, *certificate))

    @abstractmethod
    def configuration(self, nodes: Sequence[Node], certificate: Path, key: Path) -> str:
        """Return the file of deploy/ with the addresses and files of the test."""

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class HAProxy(Proxy):
    """HAProxy on a host."""

    name = "haproxy"

    @property
    def command(self) -> Sequence[str]:
        """The proxy itself, in the foreground."""
        return [str(self.program), "-W", "-f", str(self.config)]

    def configuration(self, nodes: Sequence[Node], certificate: Path, key: Path) -> str:
        """With a line for each node in both backends."""
        lines = [
            f"    server node{number} {host}:{port}\n" for number, (host, port) in enumerate(nodes)
        ]
        changes = {"    server node1 127.0.0.1:8400\n": "".join(lines)}
        text = _changed("haproxy.cfg", changes | self.listens(certificate, key))
        return text if os.geteuid() == 0 else _ROOT_ONLY.sub("", text)

    def listens(self, certificate: Path, key: Path) -> dict[str, str]:
        """Return the changes for its address, with the certificate as the comment has it."""
        both = self.directory / "outrider.pem"
        both.write_bytes(certificate.read_bytes() + key.read_bytes())
        bind = f"bind 127.0.0.1:{self.port} ssl crt {both} alpn h2,http/1.1"
        return {"bind :8080": bind}


class DockerHAProxy(HAProxy):
    """HAProxy in Docker, where a name server knows the nodes as `node`."""

    def __init__(
        self, nodes: Sequence[Node], certificate: tuple[Path, Path], resolver: Node
    ) -> None:
        self._resolver = resolver
        super().__init__(nodes, certificate)

    def configuration(self, nodes: Sequence[Node], certificate: Path, key: Path) -> str:
        """With the name server of the test; all nodes have the port of the first."""
        changes = {
            "node:8400": f"node:{nodes[0][1]}",
            "127.0.0.11:53": "{}:{}".format(*self._resolver),
        }
        return _changed("haproxy.docker.cfg", changes | self.listens(certificate, key))


class Nginx(Proxy):
    """nginx, with the file in the place of a Debian's conf.d."""

    name = "nginx"

    @property
    def command(self) -> Sequence[str]:
        """The proxy itself, in the foreground."""
        return [
            *(str(self.program), "-p", str(self.directory), "-e", "stderr"),
            *("-c", str(self.directory / "nginx.conf")),
        ]

    def configuration(self, nodes: Sequence[Node], certificate: Path, key: Path) -> str:
        """As conf.d has it, and a main file that includes it."""
        temporary = "".join(
            f"{kind}_temp_path {kind};" for kind in ("client_body", *_NGINX_UNUSED, "proxy")
        )
        user = "user root;" if os.geteuid() == 0 else ""
        (self.directory / "nginx.conf").write_text(
            f"daemon off; pid nginx.pid; {user}\n"
            "events { worker_connections 512; }\n"
            f"http {{ access_log off; {temporary} include {self.config}; }}\n"
        )
        live = f"/etc/letsencrypt/live/{_NAME}"
        changes = {
            "    server 127.0.0.1:8400;\n    server 127.0.0.1:8400 backup max_fails=0;\n": "".join(
                f"server {host}:{port};\nserver {host}:{port} backup max_fails=0;\n"
                for host, port in nodes
            ),
            "listen 80;": f"listen 127.0.0.1:{free_port()};",
            "listen 443 ssl": f"listen 127.0.0.1:{self.port} ssl",
            f"{live}/fullchain.pem": str(certificate),
            f"{live}/privkey.pem": str(key),
        }
        return _changed("nginx.conf", changes)


_NGINX_UNUSED: Final = ("fastcgi", "uwsgi", "scgi")


class Caddy(Proxy):
    """Caddy, with a certificate of its own in place of one that it would get."""

    name = "caddy"

    @property
    def command(self) -> Sequence[str]:
        """The proxy itself, in the foreground; all that it writes is in its directory."""
        return [
            *("env", f"HOME={self.directory}", f"XDG_DATA_HOME={self.directory}"),
            *(f"XDG_CONFIG_HOME={self.directory}", str(self.program), "run"),
            *("--adapter", "caddyfile", "--config", str(self.config)),
        ]

    def configuration(self, nodes: Sequence[Node], certificate: Path, key: Path) -> str:
        """With any name at the port of the test, and HTTP/3 off, which would need its UDP port."""
        to = " ".join(f"{host}:{port}" for host, port in nodes)
        changes = {
            "servers {": "admin off\nauto_https off\nservers {\nprotocols h1 h2",
            f"\n{_NAME} {{": f"\nhttps://:{self.port} {{\nbind 127.0.0.1\ntls {certificate} {key}",
            " 127.0.0.1:8400 {": f" {to} {{",
        }
        return _changed("Caddyfile", changes)


def _changed(name: str, changes: dict[str, str]) -> str:
    text = (_DEPLOY / name).read_text()
    for old, new in changes.items():
        assert old in text, old
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
