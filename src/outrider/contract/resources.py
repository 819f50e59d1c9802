"""The resources of the API: machines, their providers and sessions, and what they hold.

Times are epoch milliseconds, sizes bytes, unless a field says otherwise. The structs
that a service keeps for many thousand machines are not tracked by the garbage collector
(`gc=False`): they cannot be part of a reference cycle.
"""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from outrider.contract.providers import Category
from outrider.contract.structs import Count, Timestamp, Wire
from outrider.contract.text import (
    NO_NUL,
    Excerpt,
    Id,
    Name,
    Path,
    ShortName,
    TargetId,
    Text,
    Title,
)

AgentStatus = Literal["idle", "generating", "waiting_approval", "error"]
"""What an agent is doing."""

SessionState = Literal["running", "ended"]
"""Whether the agent of a session runs."""

EndReason = Literal["stopped", "exited", "crashed", "machine_restarted"]
"""Why a session ended: by the API; by the program itself, with exit code 0; with another exit code
or by a signal; or because the machine, its tmux server or its machine agent was restarted."""

Role = Literal["user", "assistant", "tool", "system"]
"""Who wrote a message of a chat."""

MessageKind = Literal["text", "thinking", "tool_call", "tool_result"]
"""What a message of a chat is."""

MessageSource = Literal["screen"]
"""Where a message was read, if not from the agent's record."""

ToolKind = Literal["read", "edit", "execute", "search", "fetch", "other"]
"""What a tool does: reads files, changes them, executes a command, searches, fetches from the
network; anything else is `other`.
"""

ToolStatus = Literal["pending", "running", "completed", "failed"]
"""How far a tool call is. A command whose exit code is not 0, and a call that was rejected or
interrupted, are `failed`.
"""

MAX_DIFF: Final = 262_144
"""Bytes of JSON of the patches of a tool call together; our machine agent cuts them to it."""

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
"""What choosing an option of a pending action means (after the Agent Client Protocol)."""


class Workspace(Wire, kw_only=True, gc=False):
    """The directory that an agent works in."""

    path: Path
    """The directory's absolute path on the machine."""
    name: Name
    """The last part of the path."""


class Worktree(Wire, kw_only=True, gc=False):
    """The git worktree that a session was launched in."""

    branch: Name
    """The branch that was checked out in it."""
    path: Path
    """Its absolute path on the machine. The session's directory is this one, or inside it."""
    removed: bool = False
    """Whether it was removed. The branch stays."""
    created: bool = False
    """Whether Outrider created it: it removes no other. False from older machine agents."""


class FileDiff(Wire, kw_only=True):
    """What a tool call changes in a file."""

    path: Path
    """The file's path, as the agent names it."""
    patch: Annotated[str, Meta(max_length=MAX_DIFF, pattern=NO_NUL)]
    """The changes as a unified patch; empty if they are not known. A line that begins with
    `\\ [outrider:` says that the rest is left out.
    """


class FileLocation(Wire, kw_only=True):
    """A place in a file that a tool call is about."""

    path: Path
    """The file's path, as the agent names it."""
    line: Count | None = None
    """The line, from 1; null if it is not known."""


class Tool(Wire, kw_only=True):
    """A tool call, as far as the agent tells about it."""

    id: Name
    """The agent's id of the call, which a call and its result share."""
    kind: ToolKind = "other"
    """What the tool does."""
    title: Title
    """The call in a line for people, such as the command; else the tool's name."""
    status: ToolStatus | None = None
    """How far the call is; null if the agent does not say how it ended."""
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**32)] | None = None
    """The exit code of the command that was executed; null if it is not known."""
    diff: Annotated[list[FileDiff], Meta(max_length=64)] = []
    """The files that the call changes; 256 KiB of patches at most, 64 KiB in an event."""
    locations: Annotated[list[FileLocation], Meta(max_length=64)] = []
    """The places that it is about."""
    started_at: Timestamp | None = None
    """When it began, in epoch milliseconds; null if it is not known."""
    ended_at: Timestamp | None = None
    """When it ended, in epoch milliseconds; null until then, or if it is not known."""


class ActionOption(Wire, kw_only=True):
    """One answer that a pending action accepts."""

    id: Name
    """The option's id, for `optionId`."""
    label: Title
    """The text that the agent shows for it."""
    kind: OptionKind
    """What choosing it means: once or from now on, allowed or rejected."""


class PendingAction(Wire, kw_only=True):
    """A question of an agent that a user must approve or reject."""

    id: Id
    """The action's id, for `actionId`; it does not change while the question is the same."""
    message: Text
    """The agent's question."""
    options: Annotated[list[ActionOption], Meta(max_length=64)]
    """The possible answers."""
    diff: Annotated[list[FileDiff], Meta(max_length=64)] | None = None
    """The changes that the question is about, of 64 KiB at most; null if they are not known.
    `message` has them as text after its first line.
    """


class AgentSummary(Wire, kw_only=True):
    """One of the agents inside an IDE."""

    type: Name
    """The agent's type, for `agentType`."""
    name: Name
    """The agent's name, as the IDE shows it."""
    status: AgentStatus
    """What the agent is doing."""


class Session(Wire, kw_only=True, gc=False):
    """An agent (CLI, ACP) or IDE on a machine, running or ended."""

    id: Id
    """The session's id, for `sessionId`."""
    target_id: TargetId
    """The target id of exactly this session."""
    kind: Category
    """Whether it is an IDE, a terminal program or an ACP agent."""
    type: Name
    """The provider's type, such as `claude-code`."""
    name: Name
    """The provider's name, for people."""
    status: AgentStatus
    """What the agent is doing; of an IDE, the agent that was used last."""
    title: Title | None = None
    """The chat's title; null if it has none."""
    workspace: Workspace | None = None
    """The directory that the agent works in."""
    model: Name | None = None
    """The model that the agent uses; null if it is not known."""
    created_at: Timestamp
    """When the session was launched, in epoch milliseconds."""
    last_activity_at: Timestamp
    """When its status last changed or it was last sent a message, in epoch milliseconds."""
    pending_action: PendingAction | None = None
    """The question that a user must approve or reject; null if there is none."""
    error: Text | None = None
    """While the status is `error`, what went wrong and what to do."""
    cdp_connected: bool = False
    """Whether the machine is connected to the IDE's debugging port. False for other agents."""
    agents: Annotated[list[AgentSummary], Meta(max_length=64)] = []
    """The agents inside an IDE. Empty for other agents."""
    state: SessionState = "running"
    """Whether the session is running or has ended; then `status` is the last one."""
    ended_at: Timestamp | None = None
    """When the session ended, in epoch milliseconds; null while it is running."""
    end_reason: EndReason | None = None
    """Why the session ended; null while it is running, or if the machine did not say it."""
    resumable: bool = False
    """Whether an ended session can be continued. False while it is running."""
    not_resumable: Text | None = None
    """Why an ended session cannot be continued; null if it can, or is running."""
    worktree: Worktree | None = None
    """The git worktree that it was launched in; null if it was launched without one."""


class SessionPage(Wire, kw_only=True):
    """Sessions, the newest launch first."""

    sessions: list[Session]
    """The sessions."""
    cursor: str | UnsetType = UNSET
    """What to give as `before` for the next page; absent if this is the last one. A page ends
    after `limit` sessions, or before that after 4 MiB."""


# `GET …/status` shows every field; `service/machines/views.py` has what the list of machines shows.
class Machine(Wire, kw_only=True, gc=False):
    """The hardware and system that a daemon runs on.

    The machine agent reports it (`machine/facts.py`), and the service stores it as JSON. A new
    field needs a default, because machine agents and stored reports may be older.
    """

    hostname: Name
    """The machine's name in its network."""
    platform: ShortName
    """The operating system: `linux`, `darwin`, …"""
    arch: ShortName
    """The processor's architecture."""
    release: Name
    """The operating system's release."""
    cpus: Count
    """The number of processors."""
    total_mem: Count
    """Bytes of memory."""
    free_mem: Count
    """Bytes of memory that programs can still get."""
    loadavg: Annotated[list[float], Meta(max_length=8)]
    """The load averages over 1, 5 and 15 minutes."""
    uptime: float
    """Seconds since the machine was started."""


class Provider(Wire, kw_only=True, omit_defaults=True, gc=False):
    """A kind of agent or IDE that a machine can launch."""

    type: Name
    """The type, for a launch."""
    category: Category
    """Whether it is an IDE, a terminal program or an ACP agent."""
    display_name: Name
    """The name, for people."""
    installed: bool
    """Whether the machine has its program."""
    path: Path | None
    """Where its program was found; null if it is not installed."""
    verified: bool
    """Whether the provider spec has been tested with the real program."""
    demo: bool = False
    """Whether it is the demo agent, which needs no account. Absent if it is not."""
    error: Excerpt | None = None
    """The error in the provider file: it cannot be launched until the file is corrected. Absent if
    there is no error.
    """


class CliEntry(Wire, kw_only=True):
    """The most recently used session of one CLI or ACP type, as the list of machines shows it."""

    id: str
    """The target id of the most recently used session of this type."""
    type: str
    """The provider's type."""
    name: str
    """The provider's name, for people."""
    session_id: str
    """The session's id."""
    status: AgentStatus
    """What the agent is doing."""
    title: str | None
    """The chat's title; null if it has none."""
    workspace: Workspace | None
    """The directory that the agent works in."""
    last_activity_at: int
    """When its status last changed or it was last sent a message, in epoch milliseconds."""


class IdeEntry(Wire, kw_only=True):
    """A running IDE, as the list of machines shows it."""

    id: str
    """The target id of the most recently used IDE of this type."""
    type: str
    """The provider's type."""
    name: str
    """The provider's name, for people."""
    cdp_connected: bool
    """Whether the machine is connected to the IDE's debugging port."""
    session_id: str
    """The session's id."""
    status: AgentStatus
    """What the agent that was used last is doing."""
    title: str | None
    """The chat's title; null if it has none."""
    workspace: Workspace | None
    """The directory that is open in the IDE."""
    last_activity_at: int
    """When its status last changed or it was last sent a message, in epoch milliseconds."""
    agents: list[AgentSummary]
    """The agents inside the IDE."""


class DaemonSummary(Wire, kw_only=True):
    """A machine of the account, in short."""

    id: str
    """The machine's id: the first part of its target ids."""
    hostname: str
    """The machine's name in its network."""
    nickname: str
    """What its user calls the machine."""
    platform: str
    """The operating system: `linux`, `darwin`, …"""
    cdp_connected: bool
    """Whether the machine is connected to the debugging port of any IDE."""
    ides: list[IdeEntry]
    """The running IDEs, one for each type: the one used last."""
    clis: list[CliEntry]
    """The running terminal agents, one for each type: the one used last."""
    acps: list[CliEntry]
    """The running ACP agents, one for each type: the one used last."""
    version: str
    """The version of the machine agent."""
    connected_at: int | None
    """When it connected, in epoch milliseconds; null if it never did."""
    last_seen_at: int | None
    """When the service last received data from it, in epoch milliseconds; null if never."""


class Daemon(DaemonSummary, kw_only=True):
    """A machine of the account, as the list shows it."""

    connected: bool | UnsetType = UNSET
    """Whether the machine is connected; only in the list of all machines (`state=all`)."""
    reconnecting: bool | UnsetType = UNSET
    """True in that list while the connection is lost and the machine still counts as connected,
    for the grace period; absent otherwise.
    """


class DaemonList(Wire, kw_only=True):
    """The connected machines of the account, or all of them."""

    daemons: list[Daemon]
    """The machines."""


class Approval(Wire, kw_only=True):
    """A question that an agent of the account asks, and which agent asks it."""

    action: PendingAction
    """The question, with the options to answer it."""
    target_id: str
    """The target id of the session, for the answer."""
    session_id: str
    """The session's id."""
    type: str
    """The provider's type."""
    title: str | None
    """The chat's title; null if it has none."""
    workspace: Workspace | None
    """The directory that the agent works in."""
    daemon_id: str
    """The machine's id."""
    nickname: str
    """What its user calls the machine."""
    created_at: int
    """When the agent asked, or was last sent a message after that, in epoch milliseconds."""


class ApprovalList(Wire, kw_only=True):
    """Every question that an agent of the account waits to have answered."""

    approvals: list[Approval]
    """The questions, oldest first."""
    cursor: str | UnsetType = UNSET
    """What to give as `after` for the next page; absent if this is the last one. A page ends
    after 4 MiB."""


class DaemonStatus(DaemonSummary, kw_only=True):
    """All details of a machine. An offline machine shows its last state."""

    connected: bool
    """Whether the machine is connected; true also within the grace period after it was lost."""
    machine: Machine | None
    """The hardware and system; null if the machine never connected."""
    sessions: list[Session]
    """Every running agent and IDE."""
    available_providers: list[Provider]
    """The providers that the machine knows."""
    timestamp: int
    """When this was read, in epoch milliseconds."""


class Message(Wire, kw_only=True):
    """One entry of a chat. Its id, index and timestamp never change."""

    id: str
    """The message's id, for `after`. It never changes."""
    index: int
    """The message's position in the chat, from 0."""
    role: Role
    """Who wrote it."""
    kind: MessageKind
    """Whether it is text, thinking, a tool call or the result of one."""
    content: str
    """The text; for a tool call, the tool and its arguments."""
    timestamp: int
    """When it was written, in epoch milliseconds."""
    tool: Tool | None = None
    """Of a `tool_call` and its `tool_result`, what is known of the call; null of other messages. A
    call that was read while it ran gets its end later; the result has it.
    """
    source: MessageSource | None = None
    """`screen`: read from the agent's terminal, with the lines and columns of the screen. Null: as
    its author wrote it; an agent's text is Markdown.
    """


class SummaryItem(Wire, kw_only=True):
    """A fact that a provider shows about its session."""

    id: str
    """The fact's id."""
    label: str
    """The label to show before the value."""
    value: str
    """The fact."""


class SummaryMetadata(Wire, kw_only=True):
    """What a provider shows about its session, such as its model."""

    items: list[SummaryItem] = []
    """The facts."""


class Control(Wire, kw_only=True):
    """A setting of the agent that a client may show or change, such as its mode."""

    id: Name
    """The control's id, for `controls` of a message."""
    label: Title
    """The label to show before the value."""
    type: Literal["select", "toggle"]
    """`select`: one of `options`; `toggle`: on or off."""
    options: Annotated[list[Title], Meta(max_length=1024)] = []
    """The values of a `select`."""
    value: Title | bool | None = None
    """The current value: text for a `select`, a boolean for a `toggle`; null if it is not known."""
