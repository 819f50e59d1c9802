"""`outrider attach`: the live terminal of an agent, in the terminal of a person.

    keyboard ── raw bytes ──▶ WebSocket ──▶ the agent's terminal ──▶ WebSocket ──▶ screen

The person's terminal is in raw mode meanwhile, so that every key reaches the agent, also Ctrl-C;
Ctrl-] ends it. It is restored in any case, with what a full-screen program may have set. While a
lost connection is made again, the terminal is not in raw mode: Ctrl-C ends the program then, and
keys that are typed are discarded, because they were meant for a screen that may have changed.
"""

import asyncio
import os
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Final

import msgspec
import typer
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from outrider.cli.client.completion import complete_target
from outrider.cli.client.credentials import load
from outrider.cli.client.output import UsageError, session
from outrider.cli.client.target_names import find_agent
from outrider.sdk.configuration import Configuration, configuration
from outrider.sdk.decoding import error_of
from outrider.sdk.errors import AuthenticationError, ConnectionFailed, SessionEnded

DETACH: Final = b"\x1d"
"""Ctrl-]."""

_TRY_AGAIN: Final = frozenset({1001, 1006, 1012, 1013})
"""Close codes after which the terminal is as it was: the node stops, or lost the machine."""

_REVOKED: Final = 4401
_ENDED: Final = 1000
_RECONNECT_SECONDS: Final = 30.0
_PAUSE: Final = 0.5
_MAX_MESSAGE: Final = 16 * 1024 * 1024
_CHUNK: Final = 64 * 1024

_LOST: Final = "The connection is lost; connecting again (Ctrl-C to give up)"
_RESTORE: Final = (
    b"\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m"
)
"""Leaves the alternate screen; ends mouse reports and bracketed paste; shows the cursor."""


def attach(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            autocompletion=complete_target,
            help="The session of an agent in a terminal.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print an error as JSON.")] = False,
) -> None:
    """Use the live terminal of an agent; Ctrl-] ends it, and the agent goes on."""
    with session(as_json=as_json) as client:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError("This needs a terminal: `outrider chat` and `send` work without one")
        agent = find_agent(client, target)
        chosen = configuration(*load())
        path = f"/shortcuts/{agent.id}/terminal"
        asyncio.run(_Attached(chosen, path).run())
        print("Detached; the agent goes on", file=sys.stderr)


class _Attached:
    """One person at one terminal."""

    def __init__(self, chosen: Configuration, path: str) -> None:
        self._url = chosen.api_url.replace("http", "ws", 1) + path
        self._headers = {"Authorization": chosen.headers["Authorization"]}
        self._resized = asyncio.Event()
        self._screen = sys.stdout.fileno()
        self._keyboard = sys.stdin.fileno()

    async def run(self) -> None:
        """Return when the person detaches.

        Raises:
            UsageError: the agent has no terminal.
            OutriderError: the service refused it, or the terminal has ended.
        """
        lost_at: float | None = None
        first = True
        while True:
            try:
                columns, rows = shutil.get_terminal_size()
                url = f"{self._url}?columns={columns}&rows={rows}"
                async with connect(
                    url, additional_headers=self._headers, max_size=_MAX_MESSAGE, compression=None
                ) as socket:
                    # From here on a failure is a lost connection, not a wrong address or key.
                    first, lost_at = False, None
                    with self._raw():
                        code = await self._converse(socket)
            except InvalidStatus as refusal:
                response = refusal.response
                error = error_of(
                    response.status_code, response.headers, bytes(response.body or b"")
                )
                if response.status_code == 409:  # it runs in no terminal
                    raise UsageError(str(error)) from error
                if first or response.status_code < 500:
                    raise error from None
                code = 1013
            except (OSError, InvalidHandshake, TimeoutError) as error:
                if first:
                    raise ConnectionFailed(f"No answer from {self._url}: {error}") from error
                code = 1006
            if code is None:
                return
            if code == _REVOKED:
                raise AuthenticationError("The API key is no longer valid", status=401)
            if code not in _TRY_AGAIN:
                ended = "The agent has ended" if code == _ENDED else f"The terminal ended ({code})"
                raise SessionEnded(ended)
            if lost_at is None:
                lost_at = time.monotonic()
                print(_LOST, file=sys.stderr, flush=True)
            if time.monotonic() - lost_at > _RECONNECT_SECONDS:
                raise ConnectionFailed("The connection to the terminal is lost")
            await asyncio.sleep(_PAUSE)

    @contextmanager
    def _raw(self) -> Iterator[None]:
        # Read before the mode is changed: an exception in between leaves the terminal as it was.
        before = termios.tcgetattr(self._keyboard)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._resized.set)
        try:
            tty.setraw(self._keyboard)
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            termios.tcsetattr(self._keyboard, termios.TCSAFLUSH, before)
            self._write(_RESTORE + b"\r\n")

    async def _converse(self, socket: ClientConnection) -> int | None:
        """Return the code with which the connection was closed, None if the person detached."""
        typing = asyncio.create_task(self._type(socket), name="keyboard")
        tasks = [
            typing,
            asyncio.create_task(self._show(socket), name="screen"),
            asyncio.create_task(self._resize(socket), name="size"),
        ]
        # The keyboard ends it with Ctrl-], the screen with the connection; the other two are then
        # cancelled and awaited, so that no reader of standard input is left behind.
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, ConnectionClosed):
                raise result
        if results[0] is True:
            return None
        return socket.close_code or 1006

    async def _type(self, socket: ClientConnection) -> bool:
        """Send what is typed, until Ctrl-] or the end of the input."""
        while True:
            # `os.read` in a thread could not be cancelled, and would swallow the next key.
            await _readable(self._keyboard)
            data = os.read(self._keyboard, _CHUNK)
            typed, detach, _ = data.partition(DETACH)
            if typed:
                await socket.send(typed)
            if detach or not data:
                return True

    async def _show(self, socket: ClientConnection) -> None:
        async for message in socket:
            if isinstance(message, bytes):
                self._write(message)

    async def _resize(self, socket: ClientConnection) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            columns, rows = shutil.get_terminal_size()
            size = {"type": "resize", "columns": columns, "rows": rows}
            await socket.send(msgspec.json.encode(size).decode())

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._screen, view) :]


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        with suppress(ValueError):
            loop.remove_reader(descriptor)
