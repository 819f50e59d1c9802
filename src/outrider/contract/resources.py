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
    name: Name


class ActionOption(Wire, kw_only=True):
    """One answer that a pending action accepts."""

    id: Name
    label: Title
    kind: OptionKind


class PendingAction(Wire, kw_only=True):
    """Something that an agent asks its user to approve or reject."""

    id: Id
    message: Text
    options: Annotated[list[ActionOption], Meta(max_length=64)]


class AgentSummary(Wire, kw_only=True):
    """One of the agents inside an IDE."""

    type: Name
    name: Name
    status: AgentStatus


class Session(Wire, kw_only=True, gc=False):
    """One running agent (CLI, ACP) or IDE on a machine."""

    id: Id
    target_id: TargetId
    kind: Category
    type: Name
    name: Name
    status: AgentStatus
    title: Title | None = None
    workspace: Workspace | None = None
    model: Name | None = None
    created_at: Timestamp
    last_activity_at: Timestamp
    pending_action: PendingAction | None = None
    error: Text | None = None
    cdp_connected: bool = False
    agents: Annotated[list[AgentSummary], Meta(max_length=64)] = []


class Machine(Wire, kw_only=True, gc=False):
    """The hardware and system that a daemon runs on.

    `total_mem` and `free_mem` are bytes, `uptime` is seconds, `loadavg` the averages over
    1, 5 and 15 minutes.
    """

    hostname: Name
    platform: ShortName
    arch: ShortName
    release: Name
    cpus: Count
    total_mem: Count
    free_mem: Count
    loadavg: Annotated[list[float], Meta(max_length=8)]
    uptime: float


class Provider(Wire, kw_only=True, omit_defaults=True, gc=False):
    """A kind of agent or IDE that a machine can launch.

    `path` is where its program was found, null where it is not installed. `verified` is
    false for a provider that has never been run against the real program. `error` is there only
    for one whose provider file is wrong: which file, and why. It cannot be launched until the
    file is corrected.
    """

    type: Name
    category: Category
    display_name: Name
    installed: bool
    path: Path | None
    verified: bool
    error: Excerpt | None = None


class CliEntry(Wire, kw_only=True):
    """The most recently used session of one CLI or ACP type, as the list of machines shows it."""

    id: str
    type: str
    name: str
    session_id: str
    status: AgentStatus
    title: str | None
    workspace: Workspace | None
    last_activity_at: int


class IdeEntry(Wire, kw_only=True):
    """A running IDE, as the list of machines shows it."""

    id: str
    type: str
    name: str
    cdp_connected: bool
    session_id: str
    status: AgentStatus
    title: str | None
    workspace: Workspace | None
    last_activity_at: int
    agents: list[AgentSummary]


class Daemon(Wire, kw_only=True):
    """A machine of the account, as the list shows it."""

    id: str
    hostname: str
    nickname: str
    platform: str
    cdp_connected: bool
    ides: list[IdeEntry]
    clis: list[CliEntry]
    acps: list[CliEntry]
    version: str
    connected_at: int | None
    last_seen_at: int | None


class DaemonList(Wire, kw_only=True):
    """Every connected machine of the account."""

    daemons: list[Daemon]


class DaemonStatus(Daemon, kw_only=True):
    """A machine in full. An offline one shows its last state, with `connected` false."""

    connected: bool
    machine: Machine | None
    sessions: list[Session]
    available_providers: list[Provider]
    timestamp: int


class Message(Wire, kw_only=True):
    """One entry of a chat. Its id, index and timestamp never change."""

    id: str
    index: int
    role: Literal["user", "assistant", "tool", "system"]
    kind: Literal["text", "thinking", "tool_call", "tool_result"]
    content: str
    timestamp: int


class SummaryItem(Wire, kw_only=True):
    """A fact that a provider shows about its session."""

    id: str
    label: str
    value: str


class SummaryMetadata(Wire, kw_only=True):
    """What a provider shows about its session, such as its model."""

    items: list[SummaryItem] = []


class Control(Wire, kw_only=True):
    """A setting of the agent that a client may show or change, such as its mode."""

    id: str
    label: str
    type: Literal["select", "toggle"]
    options: list[str] = []
    value: str | bool | None = None
