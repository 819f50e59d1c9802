"""Collects the debug bundle of a session, whatever kind of agent it is.

It has to work for a broken session: a part that cannot be read is listed in `problems`, and the
other parts are not affected. The parts are redacted and bounded in a child process:

    daemon   gather ── parts (JSON) ──> child ── redacted bundle (JSON) ──> answer

Redaction takes up to a second of processor time and holds the interpreter's lock all the while:
on a thread of the daemon, two bundles delayed its other work 89-fold.
"""

import asyncio
import json
import platform
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from outrider import __version__
from outrider.contract.commands import ChatDebug, ChatDebugged, ReadChat
from outrider.contract.errors import ApiError
from outrider.contract.frames import PROTOCOL_VERSION
from outrider.machine.debug import worker
from outrider.machine.debug.bounds import size
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.sessions import Sessions
from outrider.machine.system.child import run
from outrider.machine.system.processes import clean_environment

MESSAGES: Final = 20
"""The number of messages in a bundle."""

MAX_WAITING: Final = 8
"""Requests that may wait while another bundle is collected."""

_READ_SECONDS: Final = 5.0
_TMUX_SECONDS: Final = 5.0
_REDACTION_SECONDS: Final = 30.0

_PICTURE_ROOM: Final = 30 * 1024
"""The limit of a picture in bytes of JSON; an IDE has a picture in place of a terminal."""

_SCREENS: Final = ("screen", "stderr")
"""The keys in an adapter's evidence of the text that becomes the bundle's `terminal`."""


class BundleCollector:
    """Collects debug bundles, one at a time; nothing is read for requests that wait."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def collect(self, request: ChatDebug) -> ChatDebugged:
        """Return the debug bundle of the request's session.

        Raises:
            ApiError: 404, the session or the agent does not exist; 503, `MAX_WAITING` requests
                are waiting already.
        """
        session = self._sessions.find(request)
        if self._waiting > MAX_WAITING:
            raise ApiError(
                503,
                f"{MAX_WAITING} requests wait for a debug bundle of this machine already: "
                "try again when one of them is done",
            )
        self._waiting += 1
        try:
            async with self._turn:
                state = session.state(request.agent_type)
                parts = await _gather(self._sessions, session, request.agent_type)
                parts["parser"].setdefault("updatedAt", state.updated_at)
                parts["frontendSnapshot"] = request.frontend_snapshot
                return await _redacted(parts)
        finally:
            self._waiting -= 1


async def _gather(sessions: Sessions, session: AgentSession, agent: str | None) -> dict[str, Any]:
    """Return the parts as JSON values, neither redacted nor limited."""
    problems: list[str] = []

    async def part(name: str, read: Callable[[], Awaitable[Any]], otherwise: Any) -> Any:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return msgspec.to_builtins(await read())
        except TimeoutError:
            problems.append(f"{name}: timed out after {_READ_SECONDS:g} s")
        except ApiError as error:
            problems.append(f"{name}: {error.message}")
        except Exception as error:  # noqa: BLE001  # errors of a broken session belong in its bundle
            problems.append(f"{name}: {type(error).__name__}: {error}")
        return otherwise

    async def messages() -> Any:
        return (await session.read(ReadChat(limit=MESSAGES, agent_type=agent))).messages

    async def evidence() -> Any:
        return session.adapter.evidence()

    async def picture() -> Any:
        return await _picture(session)

    async def provider() -> Any:
        return next((p for p in sessions.providers() if p.type == session.record.type), None)

    parser = await part("parser", evidence, {})
    return {
        "session": msgspec.to_builtins(session.describe()),
        "provider": await part("provider", provider, None),
        "versions": await _versions(session.record.kind),
        "terminal": _terminal(parser),
        "parser": parser,
        "events": msgspec.to_builtins(list(session.events.recent)),
        "messages": await part("messages", messages, []),
        "screenshot": await part("screenshot", picture, None),
        "problems": problems,
    }


def _terminal(parser: dict[str, Any]) -> dict[str, Any] | None:
    """Move the screen out of the evidence, so that the bundle has it once."""
    for source in _SCREENS:
        text = parser.pop(source, None)
        if isinstance(text, str):
            return {"source": source, "text": text}
    return None


async def _picture(session: AgentSession) -> dict[str, Any] | None:
    """Return a small picture of an IDE. It is not redacted: it must be too small to read."""
    if session.adapter.camera is None:
        return None
    thumbnail = await session.adapter.camera.thumbnail()
    fields = ("format", "width", "height", "data")
    picture = {name: getattr(thumbnail, name) for name in fields}
    return picture if size(picture) <= _PICTURE_ROOM else None


async def _versions(kind: str) -> dict[str, str]:
    versions = {
        "outrider": __version__,
        "protocol": str(PROTOCOL_VERSION),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    tmux = await _tmux_version() if kind == "cli" else None
    return versions if tmux is None else versions | {"tmux": tmux}


async def _tmux_version() -> str | None:
    try:
        _, output = await run(["tmux", "-V"], seconds=_TMUX_SECONDS)
    except OSError:  # there is none, or it takes too long
        return None
    return output.decode("utf-8", "replace").strip().removeprefix("tmux ")[:40]


async def _redacted(parts: dict[str, Any]) -> ChatDebugged:
    """Redact and limit the parts in a child process, which is killed if this is cancelled.

    Raises:
        ApiError: 500, it was not done within `_REDACTION_SECONDS`.
    """
    data = json.dumps(parts).encode()  # not msgspec: file names may have lone surrogates
    try:
        status, output = await run(
            [sys.executable, "-P", "-m", worker.__name__],
            seconds=_REDACTION_SECONDS,
            env=clean_environment(),
            stdin=data,
        )
    except TimeoutError as error:
        raise ApiError(
            500,
            f"Secrets could not be removed from the bundle within {_REDACTION_SECONDS:g} s: "
            "try again when the machine is less busy",
        ) from error
    if status != 0:
        raise RuntimeError(f"the redaction process ended with code {status}")
    return msgspec.json.decode(output, type=ChatDebugged)
