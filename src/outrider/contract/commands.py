"""The commands that machines execute: their payloads and their results.

`COMMANDS` is the table of them. Some are public (the types of `POST …/command`); the others
implement the remaining endpoints of machines. A result is the body of the HTTP response.

A machine agent of an older release ignores a new field of a payload, and refuses a new command. So
a field that must not be ignored, because something else would happen than was requested, comes
with a command of its own: see `SendChat.command`, `LaunchInWorktree`, `StopCli`. It does not send a
new field of a result either, so that field needs a default.
"""

import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from outrider.contract.debug import ClientSnapshot, DebugBundle, check_depth
from outrider.contract.events import Respondent
from outrider.contract.providers import Category
from outrider.contract.resources import (
    AgentStatus,
    Control,
    Message,
    PendingAction,
    SessionState,
    SummaryMetadata,
    Workspace,
)
from outrider.contract.structs import Wire
from outrider.contract.text import MAX_NAME, NO_NUL, PRINTABLE, TERMINAL_NAME, is_blank

GivenName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=PRINTABLE)]
"""A name, a type or an id in a request: as `text.Name`, but not empty."""

GivenPath = Annotated[str, Meta(min_length=1, max_length=4096, pattern=NO_NUL)]
"""A path in a request: as `text.Path`, but not empty."""

InnerPath = Annotated[str, Meta(max_length=4096, pattern=NO_NUL)]
"""A path inside a session's directory; empty for that directory."""

TerminalName = Annotated[str, Meta(pattern=TERMINAL_NAME)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Verdict = Literal["approve", "reject"]
DeliveryMode = Literal["queue", "interrupt", "reject"]
"""What to do with a message while the agent is generating (see `SendChat`)."""

ChangeStatus = Literal["added", "modified", "deleted", "renamed", "untracked"]
TurnEnd = Literal["idle", "waiting_approval", "error"]
"""A status that can be waited for."""

TURN_ENDS: Final[tuple[TurnEnd, ...]] = ("idle", "waiting_approval", "error")
"""The statuses that can be waited for."""


class CommandType(StrEnum):
    """The commands that the service may send to a machine."""

    SEND_CHAT = "send_chat"
    SEND_CHAT_NOW = "send_chat_now"
    READ_CHAT = "read_chat"
    INTERRUPT = "interrupt"
    READ_QUEUE = "read_queue"
    WITHDRAW = "withdraw"
    READ_SCREEN = "read_screen"
    RESOLVE_ACTION = "resolve_action"
    SCREENSHOT = "screenshot"
    LAUNCH_IDE = "launch_ide"
    LAUNCH_CLI = "launch_cli"
    LAUNCH_IN_WORKTREE = "launch_in_worktree"
    RESUME = "resume"
    STOP_CLI = "stop_cli"
    STOP_AND_REMOVE_WORKTREE = "stop_and_remove_worktree"
    REMOVE_WORKTREE = "remove_worktree"
    AGENT_STATUS = "agent_status"
    TERMINAL = "terminal"
    CLOSE_TERMINAL = "close_terminal"
    LIST_TERMINALS = "list_terminals"
    CHAT_DEBUG = "chat_debug"
    READ_TURN = "read_turn"
    READ_CHANGES = "read_changes"
    READ_FILES = "read_files"


class NamesSession(Wire, kw_only=True):
    """A payload that may name its session: by a target id of this machine, by session id, or both.

    `target_session_id` is an alias of `session_id`: after decoding, `session_id` has the value
    of the one that is given.
    """

    target: GivenName | None = None
    """A target id of this machine. It must not contradict the path."""
    session_id: GivenName | None = None
    """A session id. It must not contradict the path or `target`."""
    target_session_id: GivenName | None = None
    """The same as `sessionId`."""

    def __post_init__(self) -> None:
        alias = self.target_session_id
        if alias is not None:
            if self.session_id not in {None, alias}:
                raise ValueError("`targetSessionId` differs from `sessionId`: give one of them")
            self.session_id = alias


class Targeted(NamesSession, kw_only=True):
    """A command for one agent. Without a session, it is the machine's most recently used one."""

    agent_type: GivenName | None = None
    """Which agent of an IDE with several: its type or name. Without it, the one used last."""


_NEW_SESSION = "A launch creates a new session: omit `{}`, or send a message to that session"
NO_SESSION: Final = {
    name: _NEW_SESSION.format(name) for name in ("target", "sessionId", "targetSessionId")
}
"""Fields that a launch refuses, because ignoring them would not do what the client wants."""


class TextPart(Wire, tag="text", tag_field="type", kw_only=True):
    """A piece of text of a message."""

    text: str
    """The text."""


class ImagePart(Wire, tag="image", tag_field="type", kw_only=True):
    """A picture of a message."""

    mime_type: GivenName
    """The picture's type."""
    data: str
    """The picture in base64."""

    def __post_init__(self) -> None:
        try:
            binascii.a2b_base64(self.data, strict_mode=True)
        except ValueError:
            raise ValueError("`data` is not base64") from None


class ChatInput(Wire, kw_only=True):
    """The canonical form of a message."""

    parts: list[TextPart | ImagePart] = []
    """The message's parts, in their order."""
    text_fallback: str | None = None
    """The text for agents that do not accept pictures, if the message has one."""

    def __post_init__(self) -> None:
        has_part = any(
            not isinstance(part, TextPart) or not is_blank(part.text) for part in self.parts
        )
        if not has_part and is_blank(self.text_fallback or ""):
            raise ValueError("The message is empty: give a part with text, or `textFallback`")

    def as_text(self) -> str:
        """Return the message for an agent that accepts only text."""
        has_image = any(isinstance(part, ImagePart) for part in self.parts)
        if self.text_fallback and (has_image or not self.parts):
            return self.text_fallback
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


class SendChat(Targeted, kw_only=True):
    """Send a message to an agent, change its controls, or both."""

    message: str | None = None
    """The message, as text. Give this or `input`."""
    input: ChatInput | None = None
    """The message in parts. It takes precedence over `message`."""
    controls: Annotated[dict[GivenName, str | bool], Meta(max_length=32)] = {}
    """Controls to change before the message is sent, by their ids. A message is not required."""
    delivery: DeliveryMode = "queue"
    """What to do while the agent is generating: `queue` the message, `interrupt` the turn and then
    send it, ahead of the queue, or `reject` it (409 `AGENT_BUSY`).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.controls and not self.has_message:
            return
        if not self.has_message:
            raise ValueError("`message` is missing: give it (a string), or `input`")
        if self.input is None and is_blank(self.message or ""):
            raise ValueError("`message` is empty: give it at least one visible character")

    @property
    def command(self) -> CommandType:
        """The command that carries this message.

        A machine agent that does not know `delivery` would ignore it and queue the message. It
        does not know `SEND_CHAT_NOW` either, and refuses that.
        """
        return CommandType.SEND_CHAT if self.delivery == "queue" else CommandType.SEND_CHAT_NOW

    @property
    def has_message(self) -> bool:
        """Whether there is a message to send, and not only controls to change."""
        return self.input is not None or self.message is not None

    def as_input(self) -> ChatInput:
        """Return the message in its canonical form."""
        return self.input or ChatInput(parts=[TextPart(text=self.message or "")])


class ReadChat(Targeted, kw_only=True):
    """Read a chat, or a part of it."""

    limit: Limit | None = None
    """How many messages, at most."""
    after: GivenName | None = None
    """The id of a message: return only those after it."""
    before: GivenName | None = None
    """The id of a message: return only those before it."""


class Interrupt(Targeted, kw_only=True):
    """Stop the current turn of an agent."""


class ReadQueue(NamesSession, kw_only=True):
    """Read the messages that wait for an agent."""


class Withdraw(NamesSession, kw_only=True):
    """Take a message out of the queue of an agent."""

    message_id: GivenName
    """The message's id."""


class ReadScreen(NamesSession, kw_only=True):
    """Read the screen of an agent in a terminal."""


class ReadChanges(NamesSession, kw_only=True):
    """Read the uncommitted and untracked changes in the directory of a session."""

    base: GivenName | None = None
    """The commit, branch or tag to compare with; `start` is the commit at which the session began.
    Without it, `HEAD`.
    """


class ReadFiles(NamesSession, kw_only=True):
    """Read a file or list a directory in the directory of a session."""

    path: InnerPath | None = None
    """The path inside the session's directory. Without it, that directory."""


class ResolveAction(Targeted, kw_only=True):
    """Approve or reject the pending action of an agent."""

    action: Verdict
    """Whether to approve or reject."""
    action_id: GivenName | None = None
    """The action to resolve. Without it, the one that is pending."""
    option_id: GivenName | None = None
    """The option to choose. Without it, the first one that means `action` once."""


class AnswerAction(ResolveAction, kw_only=True):
    """What the service sends to a machine for a `ResolveAction`."""

    by: Respondent | None = None
    """Who answers; an older service does not say it."""


class Screenshot(Targeted, kw_only=True):
    """Take a picture of an IDE's window."""

    width: Annotated[int, Meta(ge=64, le=4096)] | None = None
    """The width of the picture in pixels. Without it, the window's own."""


_ONLY_SHORTCUTS = "`{}` is a field of `POST /shortcuts/{{daemonId}}/{}`: use that"
_NO_SESSION_OR_WORKTREE: Final = NO_SESSION | {
    name: _ONLY_SHORTCUTS.format(name, "launch") for name in ("resume", "worktree")
}
_NO_WORKTREE: Final = {"removeWorktree": _ONLY_SHORTCUTS.format("removeWorktree", "stop")}


class LaunchIde(Wire, kw_only=True):
    """Start an IDE."""

    refused_fields: ClassVar[Mapping[str, str]] = _NO_SESSION_OR_WORKTREE

    ide_type: GivenName
    """The type of the IDE, as `availableProviders` gives it."""
    enable_cdp: bool = True
    """Whether to drive the IDE over its debugging port. Without that it has no chat."""
    dir: GivenPath | None = None
    """The project to open: an absolute path, or one beginning with `~`. Without it, the home
    directory.
    """
    model: GivenName | None = None
    """The model for the IDE's chat, by the IDE's own name for it."""


class LaunchCli(Wire, kw_only=True):
    """Start a CLI or ACP agent."""

    refused_fields: ClassVar[Mapping[str, str]] = _NO_SESSION_OR_WORKTREE

    cli_type: GivenName
    """The type of the agent, as `availableProviders` gives it."""
    dir: GivenPath | None = None
    """The agent's directory: an absolute path, or one beginning with `~`. Without it, the home
    directory.
    """
    model: GivenName | None = None
    """The model to use, by the agent's own name for it."""


class NewWorktree(Wire, kw_only=True):
    """The git worktree to launch a session in."""

    branch: GivenName
    """The branch that is checked out in it. It is created if it does not exist. If it has a
    worktree already, the session is launched in that.
    """
    base: GivenName | None = None
    """The commit, branch or tag at which a new branch begins. Without it, `HEAD` of the directory.
    A branch that exists is not changed by it.
    """


class LaunchInWorktree(LaunchCli, kw_only=True):
    """Start a CLI or ACP agent in a git worktree of the repository around `dir`.

    A command of its own: a machine that does not know it refuses it, and starts no agent in `dir`.
    """

    worktree: NewWorktree
    """The worktree, which is created if it does not exist."""


class Resume(Wire, kw_only=True):
    """Continue a session that has ended: under its id, in its directory, with its chat.

    A command of its own: a machine that does not know it refuses it, and starts no new session.
    """

    type: GivenName
    """The type of the session."""
    session_id: GivenName
    """The id of the session."""


class StopCli(NamesSession, kw_only=True):
    """Stop the session of a type. A session id, target or `dir` selects one of several.

    With `STOP_AND_REMOVE_WORKTREE`, its worktree is removed. That is a command of its own: a
    machine that does not know it refuses it, and stops nothing.
    """

    refused_fields: ClassVar[Mapping[str, str]] = _NO_WORKTREE

    cli_type: GivenName
    """The type of the agent."""
    dir: GivenPath | None = None
    """The directory of the session, if several of the type run."""


class RemoveWorktree(NamesSession, kw_only=True):
    """Remove the git worktree of a session that has ended."""


class AgentStatusQuery(Targeted, kw_only=True):
    """Read the status of an agent."""


class ReadTurn(Targeted, kw_only=True):
    """Read whether a turn is over. The response comes at once."""

    after: GivenName | None = None
    """The cursor of a message or of an earlier response. Without it, the present turn."""
    until: list[TurnEnd] = field(default_factory=lambda: list(TURN_ENDS))
    """The statuses that are waited for."""
    unfinished: bool = False
    """Whether to return messages although none of `until` has been reached."""


class Terminal(Wire, kw_only=True):
    """Run a shell command."""

    command: str
    """The shell command. Its standard input is empty."""
    name: TerminalName | None = None
    """The named terminal to run it in, which is kept after the command. Without it, a new shell."""
    cwd: GivenPath | None = None
    """The directory to run it in: an absolute path, or one beginning with `~`. Without it, the home
    directory, or the current directory of the named terminal.
    """

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise ValueError("`command` is empty: give a shell command")


class CloseTerminal(Wire, kw_only=True):
    """Close a named terminal and kill everything that runs in it."""

    name: TerminalName
    """The terminal's name."""


class ListTerminals(Wire, kw_only=True):
    """List the named terminals."""


class DebugQuery(Targeted, kw_only=True):
    """Read the debug bundle of a session."""


class ChatDebug(DebugQuery, kw_only=True):
    """Read the debug bundle, with the state of a client added to it."""

    frontend_snapshot: ClientSnapshot | None = None
    """The client's own state, as any JSON object."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_depth(self.frontend_snapshot)


class Result(Wire, kw_only=True):
    """The fields of every result."""

    success: bool = True
    """Always true: errors have another body."""


class Launched(Result, kw_only=True):
    """A session that is ready for a message, or waits for an answer to a dialog."""

    id: str
    """The target id of the most recently used session of this type."""
    session_id: str
    """The session's id."""
    session_target_id: str
    """The target id of exactly this session."""
    kind: Category
    """Whether it is an IDE, a terminal program or an ACP agent."""
    type: str
    """The provider's type."""
    status: AgentStatus
    """What the agent is doing."""


class Stopped(Result, kw_only=True):
    """The sessions that were stopped."""

    stopped: list[str]
    """The ids of the sessions that were stopped."""


class WorktreeRemoved(Result, kw_only=True):
    """A git worktree that was removed. Its branch stays."""

    removed: str
    """The path that it had on the machine."""


class Accepted(Result, kw_only=True):
    """A message that the agent has received, or that waits in its queue."""

    message_id: str | None
    """The id that the message will have in the chat; null if only controls were changed."""
    session_id: str
    """The session that received it."""
    status: AgentStatus
    """What the agent is doing now."""
    queued: bool
    """Whether the message waits until the agent has finished what it is doing."""
    cursor: str | None = None
    """The cursor for `after` of `GET …/wait`, to wait for the turn that this message begins; null
    if only controls were changed.
    """


class Interrupted(Result, kw_only=True):
    """A turn that is over."""

    status: AgentStatus
    """The agent's status after the turn: not `generating`."""


class QueuedMessage(Wire, kw_only=True):
    """A message that waits for an agent."""

    message_id: str
    """The id that the message will have in the chat."""
    text: str
    """The message's text."""
    created_at: int
    """When it was sent, in epoch milliseconds."""


class Queue(Result, kw_only=True):
    """The messages that wait for an agent, in the order in which it will get them."""

    messages: list[QueuedMessage]
    """The messages, 16 at most."""


class Withdrawn(Result, kw_only=True):
    """A message that was taken out of the queue."""

    message_id: str
    """The message's id."""


class Cursor(Wire, kw_only=True):
    """The place of a terminal's cursor, from 0 at the top left."""

    x: int
    """The column."""
    y: int
    """The row."""


class Screen(Result, kw_only=True):
    """What the terminal of an agent shows."""

    columns: int
    """The screen's width."""
    rows: int
    """The screen's height."""
    text: str
    """The rows as plain text, separated by line breaks, without spaces at their ends."""
    ansi: str
    """The same with escape sequences for colors and styles."""
    cursor: Cursor
    """The place of the cursor."""


class ChangedFile(Wire, kw_only=True):
    """A file that differs from the base."""

    path: str
    """Its path, relative to the session's directory."""
    old_path: str | None = None
    """The path that a renamed file has in the base; null for others."""
    status: ChangeStatus
    """What has happened to it. `untracked`: it is new, and git does not track it yet."""
    additions: int
    """The number of lines that were added."""
    deletions: int
    """The number of lines that were removed."""
    binary: bool
    """Whether it is a binary file: its contents are not in the patch, and no lines are counted."""


class Changes(Result, kw_only=True):
    """What differs from the base, in the directory of a session."""

    branch: str | None
    """The current branch; null if `HEAD` is detached."""
    base: str
    """What was compared with."""
    ahead: int
    """The number of commits that the current branch has and the base has not."""
    files: list[ChangedFile]
    """The files that differ, in the order of their paths; 2,000 at most."""
    patch: str
    """The changes as a patch of git, with untracked files as new ones; 1 MiB at most."""
    truncated: bool
    """Whether files or a part of the patch were left out."""


class FileEntry(Wire, kw_only=True):
    """An entry of a directory."""

    name: str
    """Its name."""
    type: Literal["file", "dir", "link"]
    """Whether it is a file, a directory or a symbolic link."""
    size: int
    """The size of a file in bytes; of others, 0."""


class Directory(Result, kw_only=True):
    """A directory."""

    path: str
    """Its path, relative to the session's directory; empty for that directory."""
    entries: list[FileEntry]
    """What it has, in the order of the names; 2,000 at most."""
    truncated: bool
    """Whether entries were left out."""


class FileContents(Result, kw_only=True):
    """A file."""

    path: str
    """Its path, relative to the session's directory."""
    size: int
    """Its size in bytes."""
    text: str | None
    """Its text, 512 KiB at most; null if it is binary."""
    truncated: bool
    """Whether the end of the text was left out."""
    binary: bool
    """Whether it is binary: it has a NUL byte."""


class Files(Result, kw_only=True):
    """A `Directory` or `FileContents`, as the service decodes it."""

    path: str
    entries: list[FileEntry] | UnsetType = UNSET
    size: int | UnsetType = UNSET
    text: str | UnsetType | None = UNSET
    truncated: bool
    binary: bool | UnsetType = UNSET


class Chat(Result, kw_only=True):
    """A chat's contents."""

    id: str
    """The target id of exactly this session."""
    session_id: str
    """The session's id."""
    agent_type: str
    """The agent whose chat this is."""
    title: str | None
    """The chat's title; null if it has none."""
    status: AgentStatus
    """What the agent is doing."""
    messages: list[Message]
    """The messages, oldest first."""
    pending_action: PendingAction | None
    """The question that a user must approve or reject; null if there is none."""
    total_messages: int
    """The number of messages in the chat, including those that are not returned."""
    type: str = ""
    """The type of the session's agent or IDE; empty from machine agents of an older release."""
    state: SessionState = "running"
    """Whether the session is running or has ended; then `status` is the last one."""
    resumable: bool = False
    """Whether an ended session can be continued. False while it is running."""


class TurnState(Result, kw_only=True):
    """The state of a turn."""

    session_id: str
    """The session's id."""
    reason: TurnEnd | None
    """Which status of `until` has been reached; null if none."""
    cursor: str
    """The cursor for the next request: its messages follow those of this response."""
    status: AgentStatus
    """What the agent is doing now. It may already be at work on the next message."""
    messages: list[Message]
    """The messages of the turn since `after`, oldest first."""
    pending_action: PendingAction | None
    """The question that a user must approve or reject; null if there is none."""


class Resolved(Result, kw_only=True):
    """The action that was resolved, and the option that was chosen."""

    action: Verdict
    """Whether the action was approved or rejected."""
    action_id: str
    """The action that was resolved."""
    option_id: str
    """The option that was chosen."""
    status: AgentStatus
    """What the agent is doing now."""


class AgentState(Result, kw_only=True):
    """The status of an agent, and what its provider shows about it."""

    id: str
    """The target id of exactly this session."""
    session_id: str
    """The session's id."""
    agent_type: str
    """The agent's type."""
    status: AgentStatus
    """What the agent is doing."""
    title: str | None
    """The chat's title; null if it has none."""
    summary_metadata: SummaryMetadata
    """What the provider shows about the session."""
    controls: list[Control]
    """The settings of the agent that can be changed, such as its mode."""
    workspace: Workspace | None
    """The directory that the agent works in."""
    pending_action: PendingAction | None
    """The question that a user must approve or reject; null if there is none."""
    error: str | None
    """While the status is `error`, what went wrong and what to do."""
    updated_at: int
    """When any of this last changed, in epoch milliseconds."""


class Picture(Result, kw_only=True):
    """A screenshot of an IDE, as the machine sends it and the API returns it."""

    format: Literal["png", "jpeg"]
    """The picture's format."""
    width: int
    """The picture's width in pixels."""
    height: int
    """The picture's height in pixels."""
    data: str
    """The picture in base64."""


class TerminalOutput(Result, kw_only=True):
    """The output and the exit code of a shell command. The command may have failed."""

    terminal: str | None
    """The terminal's name; null for a new shell."""
    exit_code: int
    """The command's exit code; 128 plus the number of the signal that ended it."""
    output: str
    """Its standard output and standard error, interleaved as they were written."""
    truncated: bool
    """Whether the middle of a long output was left out."""
    duration_ms: int
    """Its duration in milliseconds."""
    cwd: str
    """The command's directory; for a named terminal, the directory that its shell is in now."""


class TerminalClosed(Result, kw_only=True):
    """A terminal that was closed."""

    terminal: str
    """The terminal's name."""


class OpenTerminal(Wire, kw_only=True):
    """A named terminal that is open."""

    name: str
    """The terminal's name."""
    busy: bool
    """Whether a command runs in it or waits for it."""


class TerminalList(Result, kw_only=True):
    """The named terminals of a machine."""

    terminals: list[OpenTerminal]
    """The open terminals, in the order of their names."""


class ChatDebugged(Result, kw_only=True):
    """A debug bundle, and the same as text for an issue report; at most 256 KiB of JSON."""

    bundle: DebugBundle
    """The debug bundle."""
    text: str
    """The same as text, to paste into an issue report."""


@dataclass(frozen=True)
class CommandSpec:
    """What a command takes and returns, and what it may do.

    Attributes:
        is_public: whether it is a type of `POST /daemons/{daemonId}/command`.
        is_read: whether it changes nothing on the machine. The machine agent ends such a command at
            its deadline, or once nobody waits for its result; others decide themselves where they
            can stop. For `POST …/command`, it is what `Endpoint.is_read` returns.
    """

    payload: type[Wire]
    result: type[Result]
    is_public: bool = False
    is_read: bool = False


COMMANDS: Final[dict[CommandType, CommandSpec]] = {
    CommandType.SEND_CHAT: CommandSpec(SendChat, Accepted, is_public=True),
    CommandType.SEND_CHAT_NOW: CommandSpec(SendChat, Accepted),
    CommandType.READ_CHAT: CommandSpec(ReadChat, Chat, is_public=True, is_read=True),
    CommandType.INTERRUPT: CommandSpec(Interrupt, Interrupted),
    CommandType.READ_QUEUE: CommandSpec(ReadQueue, Queue, is_read=True),
    CommandType.WITHDRAW: CommandSpec(Withdraw, Withdrawn),
    CommandType.READ_SCREEN: CommandSpec(ReadScreen, Screen, is_read=True),
    CommandType.RESOLVE_ACTION: CommandSpec(AnswerAction, Resolved, is_public=True),
    CommandType.SCREENSHOT: CommandSpec(Screenshot, Picture, is_public=True, is_read=True),
    CommandType.LAUNCH_IDE: CommandSpec(LaunchIde, Launched, is_public=True),
    CommandType.LAUNCH_CLI: CommandSpec(LaunchCli, Launched, is_public=True),
    CommandType.LAUNCH_IN_WORKTREE: CommandSpec(LaunchInWorktree, Launched),
    CommandType.RESUME: CommandSpec(Resume, Launched),
    CommandType.STOP_CLI: CommandSpec(StopCli, Stopped, is_public=True),
    CommandType.STOP_AND_REMOVE_WORKTREE: CommandSpec(StopCli, Stopped),
    CommandType.REMOVE_WORKTREE: CommandSpec(RemoveWorktree, WorktreeRemoved),
    CommandType.AGENT_STATUS: CommandSpec(AgentStatusQuery, AgentState, is_read=True),
    CommandType.TERMINAL: CommandSpec(Terminal, TerminalOutput),
    CommandType.CLOSE_TERMINAL: CommandSpec(CloseTerminal, TerminalClosed),
    CommandType.LIST_TERMINALS: CommandSpec(ListTerminals, TerminalList, is_read=True),
    CommandType.CHAT_DEBUG: CommandSpec(ChatDebug, ChatDebugged, is_read=True),
    CommandType.READ_TURN: CommandSpec(ReadTurn, TurnState, is_read=True),
    CommandType.READ_CHANGES: CommandSpec(ReadChanges, Changes, is_read=True),
    CommandType.READ_FILES: CommandSpec(ReadFiles, Files, is_read=True),
}
"""Every command. Its handler is in `machine/commands/`."""

PUBLIC_COMMANDS: Final = frozenset(kind for kind, spec in COMMANDS.items() if spec.is_public)
"""The types of `POST /daemons/{daemonId}/command`."""

READING_COMMANDS: Final = frozenset(kind for kind, spec in COMMANDS.items() if spec.is_read)
"""The commands that change nothing on the machine."""
