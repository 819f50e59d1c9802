"""Checks the result of a command, which its machine may have made up; free of I/O.

Every id in a response is of the machine that was asked, and of the session that the request named:
a client sends its next request there. A chat has as many messages as fit into a page.
"""

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from outrider.contract.commands import (
    COMMANDS,
    Accepted,
    AgentState,
    Chat,
    CommandType,
    Launched,
    Result,
    Stopped,
    TurnState,
)
from outrider.contract.errors import OutriderError
from outrider.contract.sizes import MAX_PAGE_BYTES, messages_within
from outrider.contract.targets import parse_target

_decoders = {command: msgspec.json.Decoder(spec.result) for command, spec in COMMANDS.items()}

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class MalformedResult(OutriderError):
    """A result that is not of its command's type, or names what cannot be a session."""


class _Request(msgspec.Struct, rename="camel"):
    """What the payload of a command may name."""

    target: str | None = None
    session_id: str | None = None
    cli_type: str | None = None
    ide_type: str | None = None
    type: str | None = None
    after: str | None = None

    def session(self) -> str | None:
        """Return the session that the request names, None if the machine chooses one."""
        target = None if self.target is None else parse_target(self.target)
        if self.session_id is None and target is not None and target.kind == "session":
            return target.name
        return self.session_id


_requests = msgspec.json.Decoder(_Request)


def checked_result(machine_id: str, command: CommandType, payload: bytes, data: bytes) -> bytes:
    """Return a result as JSON, whose ids are those that were asked for.

    Args:
        payload: of the command, as JSON.
        data: what the machine has answered.

    Raises:
        MalformedResult: it is not a result of this command.
    """
    try:
        result = _decoders[command].decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedResult(str(error)) from error
    request = _requests.decode(payload)
    checked = _with_ids(machine_id, request, result)
    if isinstance(checked, Chat) and len(data) > MAX_PAGE_BYTES:
        newest = request.after is None
        checked = replace(checked, messages=messages_within(checked.messages, newest=newest))
    # The machine's own bytes, if they are right: they may have fields of a newer release.
    return data if checked == result else msgspec.json.encode(checked)


def _with_ids(machine_id: str, request: _Request, result: Result) -> Result:
    if isinstance(result, Stopped):
        stopped = [_session(request, session_id) for session_id in result.stopped]
        return replace(result, stopped=list(dict.fromkeys(stopped)))
    if not isinstance(result, Launched | Accepted | Chat | AgentState | TurnState):
        return result
    session_id = _session(request, result.session_id)
    target_id = f"{machine_id}:session:{session_id}"
    match result:
        case Launched():
            kind = request.cli_type or request.ide_type or request.type or result.type
            return replace(
                result,
                id=f"{machine_id}:{result.kind}:{kind}",
                session_id=session_id,
                session_target_id=target_id,
                type=kind,
            )
        case Chat() | AgentState():
            return replace(result, id=target_id, session_id=session_id)
    return replace(result, session_id=session_id)


def _session(request: _Request, answered: str) -> str:
    """Return the session that a request named, else the one that the machine has chosen."""
    if not _SESSION_ID.fullmatch(answered):
        raise MalformedResult(f"{answered[:80]!r} is not the id of a session")
    return request.session() or answered
