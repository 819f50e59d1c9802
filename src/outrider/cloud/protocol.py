"""uvicorn's protocol, with an end to the headers, and WebSockets of our own."""

from http import HTTPStatus
from typing import ClassVar, Final
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outrider.cloud.refusal import refusal
from outrider.cloud.websocket import Pulse, WebSocket, handshake

_MAX_HEAD_BYTES: Final = 64 * 1024
"""The longest request line with headers that is read on, once it comes in pieces."""

_TOLD: Final = frozenset({"Allow", "Upgrade", "Sec-WebSocket-Version"})
"""What a handshake that fails is told about how it would succeed."""


def protocol(pulse: Pulse) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol, with sockets that this pulse keeps alive."""
    return type("Protocol", (_Protocol,), {"pulse": pulse})


class _Protocol(HttpToolsProtocol):
    """The protocol of one connection."""

    pulse: ClassVar[Pulse]

    _head = 0
    _in_head = False

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head = 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > _MAX_HEAD_BYTES:  # uvicorn would keep endless ones in memory
                self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, and end the connection: nobody knows where a request begins."""
        text = f"{msg} Check the method, the path, the headers and the length of the body"
        self.transport.write(refusal(HTTPStatus.BAD_REQUEST, text))
        self.transport.close()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a socket, and leave nothing of this one behind."""
        self.connections.discard(self)
        url = self.url.decode("latin-1")
        response = handshake(self.scope, url)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            told = {name: value for name, value in response.headers.raw_items() if name in _TOLD}
            text = response.body.decode().strip()
            self.transport.write(refusal(response.status_code, text, told.items()))
            self.transport.close()
            return
        socket = WebSocket(
            self.transport,
            self.server_state,
            self.pulse,
            response.serialize(),
            self.config.ws_max_size,
        )
        self.transport.set_protocol(socket)
        path, _, query = url.partition("?")
        scope = {
            **self.scope,
            "type": "websocket",
            "scheme": "wss" if self.scheme == "https" else "ws",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
        }
        task = self.loop.create_task(socket.run(self.config.loaded_app, scope))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        # The parser refers to this protocol: the two would wait for the garbage collector.
        self.parser = None  # type: ignore[assignment]
