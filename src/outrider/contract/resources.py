"""The resources of the API: machines, their providers and sessions, and what they hold.

Times are epoch milliseconds, sizes bytes, unless a field says otherwise. What a service keeps
of each of many thousand machines is out of the garbage collector's sight (`gc=False`): it holds
nothing that could refer back to it.
"""

from typing import Annotated, Literal

from msgspec import Meta

from outrider.contract.providers import Category
from outrider.contract.structs import Count, Timestamp, Wire
from outrider.contract.text import Excerpt, Id, Name, Path, ShortName, TargetId, Text, Title

AgentStatus = Literal["idle", "generating", "waiting_approval", "error"]
"""What an agent is doing."""

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
"""What choosing an option of a pending action means (after the Agent Client Protocol)."""


class Workspace(Wire, kw_only=True, gc=False):
    """The directory that an agent works in."""

    path: Path
    """The directory's absolute path on the machine."""
    name: Name
    """The last part of the path."""


class ActionOption(Wire, kw_only=True):
    """One answer that a pending action accepts."""

    id: Name
    """Names the option in `optionId`."""
    label: Title
    """What the agent shows for it."""
    kind: OptionKind
    """What choosing it means: once or from now on, allowed or rejected."""


class PendingAction(Wire, kw_only=True):
    """Something that an agent asks its user to approve or reject."""

    id: Id
    """Names the action in `actionId`; the same for as long as it is the same question."""
    message: Text
    """The agent's question."""
    options: Annotated[list[ActionOption], Meta(max_length=64)]
    """The answers that it accepts."""


class AgentSummary(Wire, kw_only=True):
    """One of the agents inside an IDE."""

    type: Name
    """The agent's type, for `agentType`."""
    name: Name
    """The agent's name, as the IDE shows it."""
    status: AgentStatus
    """What the agent is doing."""


class Session(Wire, kw_only=True, gc=False):
    """One running agent (CLI, ACP) or IDE on a machine."""

    id: Id
    """The session's id, for `sessionId`."""
    target_id: TargetId
    """The target id that names exactly this session."""
    kind: Category
    """Whether it is an IDE, a terminal program or an ACP agent."""
    type: Name
    """The provider's type, such as `claude-code`."""
    name: Name
    """The provider's name, for people."""
    status: AgentStatus
    """What the agent is doing; of an IDE, the agent that was used last."""
    title: Title | None = None
    """The chat's title; null where the agent gives it none."""
    workspace: Workspace | None = None
    """The directory that the agent works in."""
    model: Name | None = None
    """The model that the agent uses; null where it is not known."""
    created_at: Timestamp
    """When the session was launched, in epoch milliseconds."""
    last_activity_at: Timestamp
    """When its status last changed or it was last sent a message, in epoch milliseconds."""
    pending_action: PendingAction | None = None
    """What it asks its user to approve or reject; null where it asks nothing."""
    error: Text | None = None
    """While the status is `error`, what went wrong and what to do."""
    cdp_connected: bool = False
    """Whether the machine is connected to the IDE's debugging port. False for other agents."""
    agents: Annotated[list[AgentSummary], Meta(max_length=64)] = []
    """The agents inside an IDE. Empty for other agents."""


class Machine(Wire, kw_only=True, gc=False):
    """The hardware and system that a daemon runs on."""

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
    """Where its program was found; null where it is not installed."""
    verified: bool
    """Whether it has been run against the real program. False for one that has never been."""
    error: Excerpt | None = None
    """Which provider file is wrong, and why: it cannot be launched until the file is corrected.
    Only a wrong one has this field.
    """


class CliEntry(Wire, kw_only=True):
    """The most recently used session of one CLI or ACP type, as the list of machines shows it."""

    id: str
    """The target id that means the session of this type which was used last."""
    type: str
    """The provider's type."""
    name: str
    """The provider's name, for people."""
    session_id: str
    """The session's id."""
    status: AgentStatus
    """What the agent is doing."""
    title: str | None
    """The chat's title; null where the agent gives it none."""
    workspace: Workspace | None
    """The directory that the agent works in."""
    last_activity_at: int
    """When its status last changed or it was last sent a message, in epoch milliseconds."""


class IdeEntry(Wire, kw_only=True):
    """A running IDE, as the list of machines shows it."""

    id: str
    """The target id that means the IDE of this type which was used last."""
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
    """The chat's title; null where the agent gives it none."""
    workspace: Workspace | None
    """The directory that is open in the IDE."""
    last_activity_at: int
    """When its status last changed or it was last sent a message, in epoch milliseconds."""
    agents: list[AgentSummary]
    """The agents inside the IDE."""


class Daemon(Wire, kw_only=True):
    """A machine of the account, as the list shows it."""

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
    """The version of the machine's agent."""
    connected_at: int | None
    """When it connected, in epoch milliseconds; null if it never did."""
    last_seen_at: int | None
    """When it was last heard of, in epoch milliseconds; null if it never was."""


class DaemonList(Wire, kw_only=True):
    """Every connected machine of the account."""

    daemons: list[Daemon]
    """The machines."""


class DaemonStatus(Daemon, kw_only=True):
    """A machine in full. An offline one shows its last state."""

    connected: bool
    """Whether the machine is connected; true also within the grace period after a drop."""
    machine: Machine | None
    """The hardware and system; null if the machine never connected."""
    sessions: list[Session]
    """Every running agent and IDE."""
    available_providers: list[Provider]
    """What the machine can launch."""
    timestamp: int
    """When this was read, in epoch milliseconds."""


class Message(Wire, kw_only=True):
    """One entry of a chat. Its id, index and timestamp never change."""

    id: str
    """The message's id, for `after`. It never changes."""
    index: int
    """The message's place in the chat, from 0."""
    role: Literal["user", "assistant", "tool", "system"]
    """Who wrote it."""
    kind: Literal["text", "thinking", "tool_call", "tool_result"]
    """Whether it is text, thinking, a tool's call or what came of the call."""
    content: str
    """The text; of a tool call, what is called with what."""
    timestamp: int
    """When it was written, in epoch milliseconds."""


class SummaryItem(Wire, kw_only=True):
    """A fact that a provider shows about its session."""

    id: str
    """Names the fact."""
    label: str
    """What to show before the value."""
    value: str
    """The fact."""


class SummaryMetadata(Wire, kw_only=True):
    """What a provider shows about its session, such as its model."""

    items: list[SummaryItem] = []
    """The facts."""


class Control(Wire, kw_only=True):
    """A setting of the agent that a client may show or change, such as its mode."""

    id: str
    """Names the control in `controls` of a message."""
    label: str
    """What to show before the value."""
    type: Literal["select", "toggle"]
    """Whether one of `options` is chosen, or it is on or off."""
    options: list[str] = []
    """The values of a `select`."""
    value: str | bool | None = None
    """The value now: text for a `select`, a boolean for a `toggle`; null where it is not known."""
