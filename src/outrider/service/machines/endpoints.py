"""Machines: list them and their sessions, read their state, command them, use their terminals.

`POST …/command` takes every public command, and is the only way to get a screenshot. The commands
to one agent have endpoints of their own in `agents/`, live terminals in `terminals/`.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Raw

from outrider.contract.commands import (
    COMMANDS,
    PUBLIC_COMMANDS,
    READING_COMMANDS,
    Accepted,
    Chat,
    CloseTerminal,
    CommandType,
    LaunchCli,
    Launched,
    LaunchIde,
    ListTerminals,
    NamesSession,
    Picture,
    ReadChat,
    RemoveWorktree,
    ResolveAction,
    Resolved,
    Screenshot,
    SendChat,
    StopCli,
    Stopped,
    Terminal,
    TerminalClosed,
    TerminalList,
    TerminalOutput,
    WorktreeRemoved,
)
from outrider.contract.errors import bad_request, not_found
from outrider.contract.outcomes import Done
from outrider.contract.resources import (
    Approval,
    ApprovalList,
    DaemonList,
    DaemonStatus,
    SessionPage,
)
from outrider.contract.sizes import count_within, json_bytes
from outrider.contract.structs import Wire
from outrider.contract.text import EXPLANATIONS, NO_NUL, TERMINAL_NAME
from outrider.service.accounts.principal import Scope
from outrider.service.agents.endpoints import answer_of
from outrider.service.agents.targets import aim, check_machine, names_as_sent
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.request_body import decode_body, fields_as_sent
from outrider.service.machines import views
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.machines.presence import Presence
from outrider.service.machines.session_history import SessionHistory
from outrider.service.machines.sockets import MachineSockets


class SendChatCommand(Wire, tag="send_chat", tag_field="type", kw_only=True):
    """Send a message to an agent."""

    payload: SendChat
    """The message, and its target."""


class ReadChatCommand(Wire, tag="read_chat", tag_field="type", kw_only=True):
    """Read a chat."""

    payload: ReadChat | None = None
    """Whose chat, and which part of it."""


class ResolveActionCommand(Wire, tag="resolve_action", tag_field="type", kw_only=True):
    """Answer an agent's pending action."""

    payload: ResolveAction
    """The answer, and its target."""


class ScreenshotCommand(Wire, tag="screenshot", tag_field="type", kw_only=True):
    """Take a picture of an IDE's window."""

    payload: Screenshot | None = None
    """Which IDE, and how large."""


class LaunchIdeCommand(Wire, tag="launch_ide", tag_field="type", kw_only=True):
    """Launch an IDE."""

    payload: LaunchIde
    """What to launch."""


class LaunchCliCommand(Wire, tag="launch_cli", tag_field="type", kw_only=True):
    """Launch a CLI or ACP agent."""

    payload: LaunchCli
    """What to launch."""


class StopCliCommand(Wire, tag="stop_cli", tag_field="type", kw_only=True):
    """Stop the session of a CLI or ACP agent."""

    payload: StopCli
    """What to stop."""


class CommandRequest(Wire, kw_only=True):
    """A command of the public set, with the payload that its type takes."""

    refused_fields: ClassVar[Mapping[str, str]] = {
        name: f"`{name}` belongs into `payload`"
        for name in ("target", "sessionId", "targetSessionId", "agentType")
    }
    type: str
    """Which command."""
    payload: Raw = msgspec.field(default_factory=lambda: Raw(b"{}"))
    """What the command needs."""


_payload_decoders: dict[CommandType, msgspec.json.Decoder[Wire]] = {
    command: msgspec.json.Decoder(COMMANDS[command].payload) for command in PUBLIC_COMMANDS
} | {
    # Not `AnswerAction`, which the machine gets: a client cannot say who answers an action.
    CommandType.RESOLVE_ACTION: msgspec.json.Decoder(ResolveAction)
}
_NAMES = {CommandType.LAUNCH_IDE: {"type": "ideType"}, CommandType.LAUNCH_CLI: {"type": "cliType"}}
_terminal_name = re.compile(TERMINAL_NAME)
_PUBLIC = {str(command): command for command in sorted(PUBLIC_COMMANDS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonServices:
    """What the handlers of machines use."""

    dispatcher: Dispatcher
    presence: Presence
    sockets: MachineSockets
    history: SessionHistory


class DaemonsQuery(Wire, kw_only=True):
    """Which machines to list."""

    state: Literal["connected", "all"] = "connected"
    """`all` also lists offline machines, in their last state, and says which are `connected`."""


class ApprovalsQuery(Wire, kw_only=True):
    """Which questions to list."""

    after: Annotated[str, Meta(max_length=512, pattern=NO_NUL)] | None = None
    """The `cursor` of a page: only the questions behind it."""


class MachineSessionsQuery(Wire, kw_only=True):
    """Which sessions of a machine."""

    state: Literal["running", "ended"] | None = None
    """Only those that run, or that have ended. Without it, both."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    """How many sessions, at most."""
    before: Annotated[str, Meta(min_length=1, max_length=512, pattern=NO_NUL)] | None = None
    """The `cursor` of a page, or the id of a session: only those behind it, launched earlier."""


class SessionsQuery(MachineSessionsQuery, kw_only=True):
    """Which sessions of the account."""

    q: Annotated[str, Meta(max_length=200, pattern=NO_NUL)] | None = None
    """Text that the title, the directory, the type or the machine's name has; case is ignored. Or a
    session's id.
    """


async def list_daemons(services: DaemonServices, call: Call) -> DaemonList:
    """The connected machines of the account, or all of them.

    A machine whose connection was lost within the grace period still counts as connected.
    """
    if call.query.state == "all":
        states = await services.presence.all_of_account(call.account_id)
        return DaemonList(daemons=[views.any_daemon(state) for state in states])
    states = await services.presence.of_account(call.account_id)
    return DaemonList(daemons=[views.daemon(state) for state in states])


async def approvals(services: DaemonServices, call: Call) -> ApprovalList:
    """What the agents on the connected machines of the account ask, oldest question first.

    Answer with `POST /shortcuts/{targetId}/approve`, whose `action` is `approve` or `reject`, and
    the `actionId`. An IDE asks for the agent that was used last.
    """
    states = await services.presence.of_account(call.account_id)
    after: str = call.query.after or ""
    waiting = [approval for state in states for approval in views.approvals(state)]
    following = sorted((item for item in waiting if _place(item) > after), key=_place)
    page = following[: count_within(map(json_bytes, following))]
    cursor = _place(page[-1]) if len(page) < len(following) else UNSET
    return ApprovalList(approvals=page, cursor=cursor)


def _place(approval: Approval) -> str:
    """Return a text that sorts as the questions do: by their time."""
    return f"{approval.created_at:016d}:{approval.target_id}"


async def daemon_status(services: DaemonServices, call: Call) -> DaemonStatus:
    """A machine in full. An offline one shows its last state, with `connected` false."""
    state = await services.dispatcher.owned(call.account_id, call.path("daemonId"))
    return views.daemon_status(state, now=time.time_ns() // 1_000_000)


async def command(services: DaemonServices, call: Call) -> bytes:
    """Send one of the seven public commands to a machine.

    The payload may name its session with `target` or `sessionId` (or `targetSessionId`, which is
    the same); without either it is the machine's most recently used one. The result has the
    fields of the matching shortcut.
    """
    request: CommandRequest = call.body
    kind = _PUBLIC.get(request.type)
    if kind is None:
        raise bad_request(
            f"Unknown command {request.type!r}: it is one of {', '.join(_PUBLIC)}", "type"
        )
    payload = bytes(request.payload)
    if payload == b"null":
        payload = b"{}"
    request_of_kind = decode_body(_payload_decoders[kind], payload, "payload")
    machine, names = call.path("daemonId"), _NAMES.get(kind, {})
    if isinstance(request_of_kind, NamesSession):
        names = {**names, **names_as_sent(request_of_kind)}
        if request_of_kind.target_session_id is not None:  # older machine agents ignore the alias
            payload = msgspec.json.encode(request_of_kind)
    if isinstance(request_of_kind, SendChat):
        kind = request_of_kind.command
    if isinstance(request_of_kind, ResolveAction):
        payload = msgspec.json.encode(answer_of(request_of_kind, call.principal))
    with fields_as_sent(names, "payload"):
        if isinstance(request_of_kind, NamesSession):
            await check_machine(services.dispatcher, call.account_id, machine, request_of_kind)
        return await _send(services, call, kind, payload)


async def _send(services: DaemonServices, call: Call, kind: CommandType, payload: bytes) -> bytes:
    """Send a command to the machine that the path names."""
    machine_id = call.path("daemonId")
    return await services.dispatcher.call(
        call.account_id, machine_id, kind, payload, call.client_gone
    )


async def terminal(services: DaemonServices, call: Call) -> bytes:
    """Run a shell command on the machine.

    Without `name` in a fresh shell, killed with all its children at the command timeout.
    With `name` in a shell that lives on, one command at a time: it keeps its directory and
    variables, and a command that outlives the timeout goes on.
    """
    return await _send(services, call, CommandType.TERMINAL, call.raw_body)


async def list_terminals(services: DaemonServices, call: Call) -> bytes:
    """The machine's named terminals, and whether a command runs in each."""
    return await _send(
        services, call, CommandType.LIST_TERMINALS, msgspec.json.encode(ListTerminals())
    )


async def close_terminal(services: DaemonServices, call: Call) -> bytes:
    """End a named terminal with all that runs in it.

    A command that runs there is killed; those that wait for it get a 409. The next command under
    the name gets a new terminal.
    """
    name = call.path("name")
    if not _terminal_name.match(name):
        raise not_found(f"No terminal {name!r}: it is {EXPLANATIONS[TERMINAL_NAME]}")
    return await _send(
        services, call, CommandType.CLOSE_TERMINAL, msgspec.json.encode(CloseTerminal(name=name))
    )


async def disconnect(services: DaemonServices, call: Call) -> Done:
    """Close the machine's connection. It is offline at once, and may reconnect by itself."""
    state = await services.dispatcher.owned(call.account_id, call.path("daemonId"))
    await services.sockets.disconnect(state)
    return Done()


async def revoke(services: DaemonServices, call: Call) -> Done:
    """Revoke the machine's connection token permanently; it must be set up again."""
    state = await services.dispatcher.owned(call.account_id, call.path("daemonId"))
    await services.sockets.revoke(state)
    return Done()


async def sessions(services: DaemonServices, call: Call) -> SessionPage:
    """The sessions of the account on all its machines, also on those that are offline.

    An ended one has `endedAt`, `endReason` and `resumable`, and is kept for 90 days. For the next
    page, give `cursor` as `before`.
    """
    query: SessionsQuery = call.query
    return await services.history.list_sessions(
        call.account_id,
        state=query.state,
        q=query.q,
        limit=query.limit,
        before=query.before,
    )


async def machine_sessions(services: DaemonServices, call: Call) -> SessionPage:
    """The sessions of a machine, also while it is offline; as `GET /sessions`."""
    query: MachineSessionsQuery = call.query
    machine = await services.dispatcher.owned(call.account_id, call.path("daemonId"))
    return await services.history.list_sessions(
        call.account_id,
        machine=machine,
        state=query.state,
        q=None,
        limit=query.limit,
        before=query.before,
    )


async def remove_worktree(services: DaemonServices, call: Call) -> WorktreeRemoved:
    """Remove the git worktree of a session that has ended; its branch stays.

    Only a worktree that Outrider created (`worktree.created`), in which everything is committed or
    ignored: what git ignores is deleted. 409 `WORKTREE_DIRTY`: it has changes. 409 also while the
    session runs, or another one in the worktree. 404: there is no such worktree, or not any more.
    """
    request = RemoveWorktree()
    target = await aim(services.dispatcher, call.account_id, call.path("ideId"), request)
    result = await services.dispatcher.call(
        call.account_id,
        target.daemon_id,
        CommandType.REMOVE_WORKTREE,
        msgspec.json.encode(request),
        call.client_gone,
    )
    removed = msgspec.json.decode(result, type=WorktreeRemoved)
    await services.history.worktree_removed(target.daemon_id, removed.removed)
    return removed


_PATH = "/api/v1/daemons"

ENDPOINTS: list[Endpoint[DaemonServices]] = [
    Endpoint(
        method="GET",
        path=_PATH,
        scope=Scope.IDE_READ,
        summary="List machines",
        handler=list_daemons,
        query=DaemonsQuery,
        response=DaemonList,
        tag="Daemons",
    ),
    Endpoint(
        method="GET",
        path="/api/v1/approvals",
        scope=Scope.AGENT_READ,
        summary="List what agents ask",
        handler=approvals,
        query=ApprovalsQuery,
        response=ApprovalList,
        tag="Shortcuts",
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{daemonId}}/status",
        scope=Scope.IDE_READ,
        summary="Read a machine's state",
        handler=daemon_status,
        response=DaemonStatus,
        tag="Daemons",
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{daemonId}}/command",
        scope=Scope.IDE_CONTROL,
        summary="Send a command",
        handler=command,
        is_read=lambda request: request.type in READING_COMMANDS,
        response=(Accepted, Chat, Resolved, Picture, Launched, Stopped),
        body=CommandRequest,
        described_bodies=(
            SendChatCommand,
            ReadChatCommand,
            ResolveActionCommand,
            ScreenshotCommand,
            LaunchIdeCommand,
            LaunchCliCommand,
            StopCliCommand,
        ),
        tag="Daemons",
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{daemonId}}/terminal",
        scope=Scope.TERMINAL_EXEC,
        summary="Run a shell command",
        handler=terminal,
        response=TerminalOutput,
        body=Terminal,
        tag="Daemons",
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{daemonId}}/terminals",
        scope=Scope.TERMINAL_EXEC,
        summary="List the named terminals",
        handler=list_terminals,
        response=TerminalList,
        tag="Daemons",
    ),
    Endpoint(
        method="DELETE",
        path=f"{_PATH}/{{daemonId}}/terminals/{{name}}",
        scope=Scope.TERMINAL_EXEC,
        summary="End a named terminal",
        handler=close_terminal,
        response=TerminalClosed,
        tag="Daemons",
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{daemonId}}/disconnect",
        scope=Scope.IDE_CONTROL,
        summary="Disconnect a machine",
        handler=disconnect,
        response=Done,
        recent_login=True,
        tag="Daemons",
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{daemonId}}/revoke",
        scope=Scope.IDE_CONTROL,
        summary="Revoke a machine's token",
        handler=revoke,
        response=Done,
        recent_login=True,
        tag="Daemons",
    ),
    Endpoint(
        method="GET",
        path="/api/v1/sessions",
        scope=Scope.AGENT_READ,
        summary="List the sessions of the account",
        handler=sessions,
        query=SessionsQuery,
        response=SessionPage,
        tag="Daemons",
    ),
    Endpoint(
        method="GET",
        path="/api/v1/daemons/{daemonId}/sessions",
        scope=Scope.AGENT_READ,
        summary="List the sessions of a machine",
        handler=machine_sessions,
        query=MachineSessionsQuery,
        response=SessionPage,
        tag="Daemons",
    ),
    Endpoint(
        method="DELETE",
        path="/api/v1/shortcuts/{ideId}/worktree",
        scope=Scope.IDE_CONTROL,
        summary="Remove the worktree of a session that has ended",
        handler=remove_worktree,
        response=WorktreeRemoved,
        tag="Shortcuts",
    ),
]
