"""The shortcuts: launch and stop agents, talk to them, interrupt them, answer what they ask.

`{ideId}` in a path is the API's name of a target id (`contract.targets`), of any kind of agent.
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from outrider.contract.commands import (
    NO_SESSION,
    Accepted,
    AgentState,
    AgentStatusQuery,
    AnswerAction,
    Changes,
    Chat,
    ChatDebug,
    ChatDebugged,
    CommandType,
    DebugQuery,
    Directory,
    FileContents,
    GivenName,
    GivenPath,
    InnerPath,
    Interrupt,
    Interrupted,
    LaunchCli,
    Launched,
    LaunchIde,
    LaunchInWorktree,
    Limit,
    NamesSession,
    NewWorktree,
    Queue,
    ReadChanges,
    ReadChat,
    ReadFiles,
    ReadQueue,
    ReadScreen,
    ResolveAction,
    Resolved,
    Resume,
    Screen,
    SendChat,
    StopCli,
    Stopped,
    Withdraw,
    Withdrawn,
)
from outrider.contract.errors import bad_request, not_found
from outrider.contract.events import Respondent
from outrider.contract.providers import BUILT_IN_TYPES
from outrider.contract.structs import Wire
from outrider.contract.text import MAX_NAME, MAX_TITLE, is_printable
from outrider.service.accounts.principal import Principal, Scope
from outrider.service.agents.targets import aim, check_machine, names_as_sent
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.http.request_body import fields_as_sent
from outrider.service.machines.dispatch import Dispatcher


class LaunchRequest(Wire, kw_only=True):
    """What to launch, where, and with which model."""

    refused_fields: ClassVar[Mapping[str, str]] = NO_SESSION

    type: GivenName
    """The type of the agent or IDE, as `availableProviders` gives it."""
    dir: GivenPath | None = None
    """Where it is to work: an absolute path, or one beginning with `~`. Without it, the home
    directory.
    """
    model: GivenName | None = None
    """The model to use, by the agent's own name for it."""
    resume: GivenName | None = None
    """The id of an ended session of this type to continue, in place of a new one. It keeps its id,
    directory, model and chat. Not together with `dir`, `model` or `worktree`.
    """
    worktree: NewWorktree | None = None
    """A git worktree of the repository around `dir` to launch the agent in. Not for IDEs."""


class StopRequest(NamesSession, kw_only=True):
    """What to stop. The session's name or `dir` chooses one where several run."""

    type: GivenName
    """The type of the agent."""
    dir: GivenPath | None = None
    """The directory of the session, where several of the type run."""
    remove_worktree: bool = False
    """Whether to remove the session's worktree too. If it has changes, nothing is done (409
    `WORKTREE_DIRTY`).
    """


class AgentQuery(Wire, kw_only=True):
    """Which agent of the target; without it, its only one, or the one used last."""

    agent_type: GivenName | None = None
    """Which agent of an IDE with several: its type or name. Without it, the one used last."""


class ChatQuery(AgentQuery, kw_only=True):
    """The messages between two messages; of these the first `limit`, without `after` the last."""

    limit: Limit | None = None
    """How many messages, at most."""
    after: GivenName | None = None
    """The id of a message: only those behind it."""
    before: GivenName | None = None
    """The id of a message: only those before it."""


class ChangesQuery(Wire, kw_only=True):
    """What to compare with."""

    base: GivenName | None = None
    """The commit, branch or tag to compare with; `start` is the commit at which the session began.
    Without it, `HEAD`.
    """


class FilesQuery(Wire, kw_only=True):
    """What to read."""

    path: InnerPath | None = None
    """The path inside the session's directory. Without it, that directory."""


_NAMES = {"ideType": "type", "cliType": "type"}


async def launch(dispatcher: Dispatcher, call: Call) -> bytes:
    """Start an IDE, a CLI agent or an ACP agent, as a new session or as one that has ended.

    Responds once the agent is ready for a message, or asks a question first. With `resume`, the
    agent continues its own record of an ended session. 409 `NOT_RESUMABLE` says why it cannot: the
    session is running, or is being resumed already, or its agent does not offer that.

    With `worktree`, the agent works in a git worktree of its own: 400 if `dir` is in no git
    repository, or the branch cannot be used. No program that the repository names is run.
    """
    request: LaunchRequest = call.body
    state = await dispatcher.owned(call.account_id, call.path("daemonId"))
    category = next(
        (p.category for p in state.providers if p.type == request.type),
        BUILT_IN_TYPES.get(request.type, (None,))[0],
    )
    if category is None:
        types = sorted({p.type for p in state.providers} | BUILT_IN_TYPES.keys())
        raise bad_request(f"Unknown type {request.type!r}: it is one of {', '.join(types)}", "type")
    if request.resume is not None:
        for name in ("dir", "model", "worktree"):
            if getattr(request, name) is not None:
                raise bad_request(f"A resumed session keeps its {name}: leave out `{name}`", name)
        resume = Resume(type=request.type, session_id=request.resume)
        with fields_as_sent({"sessionId": "resume"}):
            return await _send(dispatcher, call, state.id, CommandType.RESUME, resume)
    kind, payload = _launch_command(request, is_ide=category == "ide")
    with fields_as_sent(_NAMES):
        return await _send(dispatcher, call, state.id, kind, payload)


def _launch_command(request: LaunchRequest, *, is_ide: bool) -> tuple[CommandType, Wire]:
    """Return the command and the payload of a new session."""
    kind, directory, model = request.type, request.dir, request.model
    if request.worktree is not None:
        if is_ide:
            raise bad_request("An IDE is launched without a worktree: leave it out", "worktree")
        return CommandType.LAUNCH_IN_WORKTREE, LaunchInWorktree(
            cli_type=kind, dir=directory, model=model, worktree=request.worktree
        )
    if is_ide:
        return CommandType.LAUNCH_IDE, LaunchIde(ide_type=kind, dir=directory, model=model)
    return CommandType.LAUNCH_CLI, LaunchCli(cli_type=kind, dir=directory, model=model)


async def stop(dispatcher: Dispatcher, call: Call) -> bytes:
    """Stop a session, leaving nothing of it running.

    With `removeWorktree`, its git worktree is removed too, if everything in it is committed or
    ignored; the branch stays. 409 `WORKTREE_DIRTY`: it has changes. Then the session goes on.
    """
    request: StopRequest = call.body
    machine = call.path("daemonId")
    kind = CommandType.STOP_AND_REMOVE_WORKTREE if request.remove_worktree else CommandType.STOP_CLI
    await check_machine(dispatcher, call.account_id, machine, request)
    payload = StopCli(
        cli_type=request.type,
        target=request.target,
        session_id=request.session_id,
        dir=request.dir,
    )
    with fields_as_sent({**_NAMES, **names_as_sent(request)}):
        return await _send(dispatcher, call, machine, kind, payload)


async def send_chat(dispatcher: Dispatcher, call: Call) -> bytes:
    """Send a message to an agent.

    Answers once the agent has taken it, not once it has answered. While the agent is
    generating, the message waits in order, 16 at most, and `queued` is true. With `delivery`
    `interrupt` it stops the current turn instead, and is sent ahead of the messages that wait;
    with `reject` it is refused with a 409 `AGENT_BUSY`.
    """
    request: SendChat = call.body
    return await _to_target(dispatcher, call, request.command, request)


async def interrupt(dispatcher: Dispatcher, call: Call) -> bytes:
    """Stop an agent's current turn.

    The turn is over when this answers; an error says that it is not. A question that the agent
    asks is part of the turn: it is withdrawn, and what it asked for is not done. Messages in the
    queue stay there, and the first of them is sent next. 409 `NOT_GENERATING`: there is no turn.
    """
    return await _to_target(dispatcher, call, CommandType.INTERRUPT, call.body or Interrupt())


async def read_queue(dispatcher: Dispatcher, call: Call) -> bytes:
    """The messages that wait for an agent, in the order in which it will get them."""
    return await _to_target(dispatcher, call, CommandType.READ_QUEUE, ReadQueue())


async def withdraw(dispatcher: Dispatcher, call: Call) -> bytes:
    """Take back a message that waits for an agent.

    409 `ALREADY_SENT`: the agent has it, or is getting it at this moment.
    """
    message_id = call.path("messageId")
    if len(message_id) > MAX_NAME or not is_printable(message_id):
        raise not_found("No message has such an id")
    request = Withdraw(message_id=message_id)
    return await _to_target(dispatcher, call, CommandType.WITHDRAW, request)


async def read_screen(dispatcher: Dispatcher, call: Call) -> bytes:
    """What the terminal of a CLI agent shows now: as plain text, and with colors (`ansi`).

    Secrets on it are not removed, as in the chat. Agents without a terminal have no screen (400).
    """
    return await _to_target(dispatcher, call, CommandType.READ_SCREEN, ReadScreen())


async def read_chat(dispatcher: Dispatcher, call: Call) -> bytes:
    """Read a chat: the messages between `after` and `before`, at most `limit`."""
    query: ChatQuery = call.query
    command = ReadChat(
        agent_type=query.agent_type, limit=query.limit, after=query.after, before=query.before
    )
    return await _to_target(dispatcher, call, CommandType.READ_CHAT, command)


async def read_changes(dispatcher: Dispatcher, call: Call) -> bytes:
    """Read the uncommitted and untracked changes in the session's directory, with their patch.

    They are compared with `base`. A branch gives what the session's branch changes in all, and
    `start` what has changed since the session began, committed or not. 409 also if that commit is
    not known: the session is older than this feature, or began outside a repository. 409
    `NO_REPOSITORY`: the directory is in no git repository. No program that the repository names
    is run: hooks, filters, `textconv` and others.
    """
    request = ReadChanges(base=call.query.base)
    return await _to_target(dispatcher, call, CommandType.READ_CHANGES, request)


async def read_files(dispatcher: Dispatcher, call: Call) -> bytes:
    """List a directory or read a file in the session's directory.

    A directory has `entries`, a file the other fields. What git ignores does not exist here (404),
    nor does what is outside, through a link either.
    """
    request = ReadFiles(path=call.query.path)
    return await _to_target(dispatcher, call, CommandType.READ_FILES, request)


async def approve(dispatcher: Dispatcher, call: Call) -> bytes:
    """Answer an agent's pending action. Of two answers at once, one succeeds."""
    answer = answer_of(call.body, call.principal)
    return await _to_target(dispatcher, call, CommandType.RESOLVE_ACTION, answer)


def answer_of(request: ResolveAction, principal: Principal) -> AnswerAction:
    """Return the command for a client's answer, which says whose answer it is."""
    by = Respondent(
        kind="key" if principal.kind == "key" else "user",
        id=principal.id,
        name=None if principal.name is None else principal.name[:MAX_TITLE],
    )
    fields = {name: getattr(request, name) for name in request.__struct_fields__}
    return AnswerAction(**fields, by=by)


async def status(dispatcher: Dispatcher, call: Call) -> bytes:
    """What an agent is doing now."""
    command = AgentStatusQuery(agent_type=call.query.agent_type)
    return await _to_target(dispatcher, call, CommandType.AGENT_STATUS, command)


async def read_debug(dispatcher: Dispatcher, call: Call) -> bytes:
    """A session's debug bundle, and the same as text for an issue report.

    Secrets are taken out on the machine, before anything leaves it. `bundle` and `text`
    together have 256 KiB at most; what was cut is in `omitted`.
    """
    command = DebugQuery(agent_type=call.query.agent_type)
    return await _to_target(dispatcher, call, CommandType.CHAT_DEBUG, command)


async def chat_debug(dispatcher: Dispatcher, call: Call) -> bytes:
    """A session's debug bundle together with what a client shows, its `frontendSnapshot`.

    As with GET, nothing is changed or kept; the snapshot is redacted and bounded too.
    """
    return await _to_target(dispatcher, call, CommandType.CHAT_DEBUG, call.body or ChatDebug())


async def _to_target(
    dispatcher: Dispatcher, call: Call, kind: CommandType, request: NamesSession
) -> bytes:
    """Send a command to the target that the path names."""
    target = await aim(dispatcher, call.account_id, call.path("ideId"), request)
    with fields_as_sent(names_as_sent(request)):
        return await _send(dispatcher, call, target.daemon_id, kind, request)


async def _send(
    dispatcher: Dispatcher, call: Call, machine_id: str, kind: CommandType, payload: Wire
) -> bytes:
    data = msgspec.json.encode(payload)
    return await dispatcher.call(call.account_id, machine_id, kind, data, call.client_gone)


_PATH = "/api/v1/shortcuts"
_TAG = "Shortcuts"

ENDPOINTS: list[Endpoint[Dispatcher]] = [
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{daemonId}}/launch",
        scope=Scope.IDE_CONTROL,
        summary="Launch an agent or IDE",
        handler=launch,
        response=Launched,
        body=LaunchRequest,
        tag=_TAG,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{daemonId}}/stop",
        scope=Scope.IDE_CONTROL,
        summary="Stop an agent",
        handler=stop,
        response=Stopped,
        body=StopRequest,
        tag=_TAG,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{ideId}}/chat",
        scope=Scope.AGENT_CONTROL,
        summary="Send a message",
        handler=send_chat,
        response=Accepted,
        body=SendChat,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/chat",
        scope=Scope.AGENT_READ,
        summary="Read the chat",
        handler=read_chat,
        response=Chat,
        query=ChatQuery,
        tag=_TAG,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{ideId}}/interrupt",
        scope=Scope.AGENT_CONTROL,
        summary="Stop the current turn",
        handler=interrupt,
        response=Interrupted,
        body=Interrupt,
        body_optional=True,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/queue",
        scope=Scope.AGENT_READ,
        summary="List the messages that wait",
        handler=read_queue,
        response=Queue,
        tag=_TAG,
    ),
    Endpoint(
        method="DELETE",
        path=f"{_PATH}/{{ideId}}/queue/{{messageId}}",
        scope=Scope.AGENT_CONTROL,
        summary="Take back a message",
        handler=withdraw,
        response=Withdrawn,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/screen",
        scope=Scope.AGENT_READ,
        summary="Read an agent's screen",
        handler=read_screen,
        response=Screen,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/diff",
        scope=Scope.AGENT_READ,
        summary="Read a session's changes",
        handler=read_changes,
        response=Changes,
        query=ChangesQuery,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/files",
        scope=Scope.AGENT_READ,
        summary="Read a session's files",
        handler=read_files,
        response=(Directory, FileContents),
        query=FilesQuery,
        tag=_TAG,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{ideId}}/approve",
        scope=Scope.AGENT_CONTROL,
        summary="Approve or reject",
        handler=approve,
        response=Resolved,
        body=ResolveAction,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/status",
        scope=Scope.AGENT_READ,
        summary="Read an agent's status",
        handler=status,
        response=AgentState,
        query=AgentQuery,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path=f"{_PATH}/{{ideId}}/chat/debug",
        scope=Scope.AGENT_READ,
        summary="Read a session's debug bundle",
        handler=read_debug,
        response=ChatDebugged,
        query=AgentQuery,
        tag=_TAG,
    ),
    Endpoint(
        method="POST",
        path=f"{_PATH}/{{ideId}}/chat/debug",
        scope=Scope.AGENT_READ,
        summary="Read a session's debug bundle, with what a client shows",
        handler=chat_debug,
        response=ChatDebugged,
        body=ChatDebug,
        body_optional=True,
        reads_only=True,
        tag=_TAG,
    ),
]
