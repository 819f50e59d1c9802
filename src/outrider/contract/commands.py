"""The commands that a machine carries out: their payloads and their results.

Seven of them are public (`PUBLIC_COMMANDS`, the types of `POST …/command`). The others
are the words behind the remaining routes. A result is the body of the HTTP response.
"""

import binascii
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from outrider.contract.debug import DebugBundle, Snapshot, check_depth
from outrider.contract.providers import Category
from outrider.contract.resources import (
    AgentStatus,
    Control,
    Message,
    PendingAction,
    SummaryMetadata,
    Workspace,
)
from outrider.contract.structs import Wire
from outrider.contract.text import MAX_NAME, NO_NUL, PRINTABLE, TERMINAL_NAME, is_blank

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=PRINTABLE)]
Path = Annotated[str, Meta(min_length=1, max_length=4096, pattern=NO_NUL)]
TerminalName = Annotated[str, Meta(pattern=TERMINAL_NAME)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Verdict = Literal["approve", "reject"]


class CommandType(StrEnum):
    """Every command that the service may send to a machine."""

    SEND_CHAT = "send_chat"
    READ_CHAT = "read_chat"
    RESOLVE_ACTION = "resolve_action"
    SCREENSHOT = "screenshot"
    LAUNCH_IDE = "launch_ide"
    LAUNCH_CLI = "launch_cli"
    STOP_CLI = "stop_cli"
    AGENT_STATUS = "agent_status"
    TERMINAL = "terminal"
    CLOSE_TERMINAL = "close_terminal"
    CHAT_DEBUG = "chat_debug"


class NamesSession(Wire, kw_only=True):
    """A payload that may name its session: by a target id of this machine, by its own id, or both.

    `target_session_id` is an alias of `session_id`: after decoding, `session_id` has the value
    of whichever was given.
    """

    target: Name | None = None
    session_id: Name | None = None
    target_session_id: Name | None = None

    def __post_init__(self) -> None:
        alias = self.target_session_id
        if alias is not None:
            if self.session_id not in {None, alias}:
                raise ValueError("`targetSessionId` is not `sessionId`: give one of them")
            self.session_id = alias


class Targeted(NamesSession, kw_only=True):
    """A command for one agent. Without a name it is the machine's most recently used session."""

    agent_type: Name | None = None


_NEW_SESSION = "A launch makes a new session: leave `{}` out, or send a message to that session"
NO_SESSION: Final = {
    name: _NEW_SESSION.format(name) for name in ("target", "sessionId", "targetSessionId")
}
"""Fields that a launch refuses, because ignoring them would do something else than was asked."""


class TextPart(Wire, tag="text", tag_field="type", kw_only=True):
    """A piece of text of a message."""

    text: str


class ImagePart(Wire, tag="image", tag_field="type", kw_only=True):
    """A picture of a message: base64 in `data`."""

    mime_type: Name
    data: str

    def __post_init__(self) -> None:
        try:
            binascii.a2b_base64(self.data, strict_mode=True)
        except ValueError:
            raise ValueError("`data` is not base64") from None


class ChatInput(Wire, kw_only=True):
    """The canonical form of a message. `text_fallback` serves agents that take only text."""

    parts: list[TextPart | ImagePart] = []
    text_fallback: str | None = None

    def __post_init__(self) -> None:
        has_part = any(
            not isinstance(part, TextPart) or not is_blank(part.text) for part in self.parts
        )
        if not has_part and is_blank(self.text_fallback or ""):
            raise ValueError("The message is empty: give a part with text, or `textFallback`")

    def as_text(self) -> str:
        """Return the message for an agent that takes only text."""
        has_image = any(isinstance(part, ImagePart) for part in self.parts)
        if self.text_fallback and (has_image or not self.parts):
            return self.text_fallback
        return "\n".join(part.text for part in self.parts if isinstance(part, TextPart))


class SendChat(Targeted, kw_only=True):
    """Send a message to an agent. `input` wins where both forms are given.

    `controls` are changed before, by their ids; without a message, that is all that happens.
    """

    message: str | None = None
    input: ChatInput | None = None
    controls: Annotated[dict[Name, str | bool], Meta(max_length=32)] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.controls and not self.has_message:
            return
        if not self.has_message:
            raise ValueError("`message` is missing: give it (a string), or `input`")
        if self.input is None and is_blank(self.message or ""):
            raise ValueError("`message` is empty: give it at least one visible character")

    @property
    def has_message(self) -> bool:
        """Whether there is a message to be sent, and not only controls to be changed."""
        return self.input is not None or self.message is not None

    def as_input(self) -> ChatInput:
        """Return the message in its canonical form, whichever form was given."""
        return self.input or ChatInput(parts=[TextPart(text=self.message or "")])


class ReadChat(Targeted, kw_only=True):
    """Read a chat: the messages behind the one with the id `after`, or the last `limit`."""

    limit: Limit | None = None
    after: Name | None = None


class ResolveAction(Targeted, kw_only=True):
    """Answer a pending action. Without `action_id`, whichever is pending."""

    action: Verdict
    action_id: Name | None = None
    option_id: Name | None = None


class Screenshot(Targeted, kw_only=True):
    """Take a picture of an IDE's window, scaled to `width` pixels."""

    width: Annotated[int, Meta(ge=64, le=4096)] | None = None


class LaunchIde(Wire, kw_only=True):
    """Start an IDE. `dir` is the project to open, `model` what its chat is to use."""

    refused_fields: ClassVar[Mapping[str, str]] = NO_SESSION

    ide_type: Name
    enable_cdp: bool = True
    dir: Path | None = None
    model: Name | None = None


class LaunchCli(Wire, kw_only=True):
    """Start a CLI or ACP agent in `dir` (the home directory without it)."""

    refused_fields: ClassVar[Mapping[str, str]] = NO_SESSION

    cli_type: Name
    dir: Path | None = None
    model: Name | None = None


class StopCli(NamesSession, kw_only=True):
    """Stop the session of a type. Its name or `dir` chooses one where several run."""

    cli_type: Name
    dir: Path | None = None


class AgentStatusQuery(Targeted, kw_only=True):
    """Ask what an agent is doing."""


class Terminal(Wire, kw_only=True):
    """Run a shell command; in the terminal called `name`, where one is given."""

    command: str
    name: TerminalName | None = None
    cwd: Path | None = None

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise ValueError("`command` is empty: give a shell command")


class CloseTerminal(Wire, kw_only=True):
    """End a named terminal with all that runs in it."""

    name: TerminalName


class DebugQuery(Targeted, kw_only=True):
    """Ask for the debug bundle of a session."""


class ChatDebug(DebugQuery, kw_only=True):
    """Ask for the debug bundle, with what a client shows in it as `frontend_snapshot`."""

    frontend_snapshot: Snapshot | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_depth(self.frontend_snapshot)


class Result(Wire, kw_only=True):
    """What every result begins with."""

    success: bool = True


class Launched(Result, kw_only=True):
    """A session that is ready for a message (or waits for an answer to a dialog)."""

    id: str
    session_id: str
    session_target_id: str
    kind: Category
    type: str
    status: AgentStatus


class Stopped(Result, kw_only=True):
    """The ids of the sessions that were stopped."""

    stopped: list[str]


class Accepted(Result, kw_only=True):
    """A message that the agent has taken, or that waits in its queue (`queued`).

    `message_id` is null where only controls were changed.
    """

    message_id: str | None
    session_id: str
    status: AgentStatus
    queued: bool


class Chat(Result, kw_only=True):
    """A chat's contents. `total_messages` counts those left out as well."""

    id: str
    session_id: str
    agent_type: str
    title: str | None
    status: AgentStatus
    messages: list[Message]
    pending_action: PendingAction | None
    total_messages: int


class Resolved(Result, kw_only=True):
    """The action that was answered, with the option that answered it."""

    action: Verdict
    action_id: str
    option_id: str
    status: AgentStatus


class AgentState(Result, kw_only=True):
    """What an agent is doing, and what its provider shows about it."""

    id: str
    session_id: str
    agent_type: str
    status: AgentStatus
    title: str | None
    summary_metadata: SummaryMetadata
    controls: list[Control]
    workspace: Workspace | None
    pending_action: PendingAction | None
    error: str | None
    updated_at: int


class Picture(Result, kw_only=True):
    """A screenshot: base64 in `data`, its size in pixels."""

    format: Literal["png", "jpeg"]
    width: int
    height: int
    data: str


class TerminalOutput(Result, kw_only=True):
    """What a shell command printed, stdout and stderr as they came.

    `success` tells that the command ran to its end; how it ended is in `exit_code`.
    `truncated` tells that the middle of a long output was left out.
    """

    terminal: str | None
    exit_code: int
    output: str
    truncated: bool
    duration_ms: int
    cwd: str


class TerminalClosed(Result, kw_only=True):
    """The name of the terminal that was ended."""

    terminal: str


class ChatDebugged(Result, kw_only=True):
    """A debug bundle, and the same as text for an issue report.

    As JSON it has `MAX_RESPONSE_BYTES` at the most.
    """

    bundle: DebugBundle
    text: str


PAYLOADS: Final[dict[CommandType, type[Wire]]] = {
    CommandType.SEND_CHAT: SendChat,
    CommandType.READ_CHAT: ReadChat,
    CommandType.RESOLVE_ACTION: ResolveAction,
    CommandType.SCREENSHOT: Screenshot,
    CommandType.LAUNCH_IDE: LaunchIde,
    CommandType.LAUNCH_CLI: LaunchCli,
    CommandType.STOP_CLI: StopCli,
    CommandType.AGENT_STATUS: AgentStatusQuery,
    CommandType.TERMINAL: Terminal,
    CommandType.CLOSE_TERMINAL: CloseTerminal,
    CommandType.CHAT_DEBUG: ChatDebug,
}
"""The payload of each command."""

RESULTS: Final[dict[CommandType, type[Result]]] = {
    CommandType.SEND_CHAT: Accepted,
    CommandType.READ_CHAT: Chat,
    CommandType.RESOLVE_ACTION: Resolved,
    CommandType.SCREENSHOT: Picture,
    CommandType.LAUNCH_IDE: Launched,
    CommandType.LAUNCH_CLI: Launched,
    CommandType.STOP_CLI: Stopped,
    CommandType.AGENT_STATUS: AgentState,
    CommandType.TERMINAL: TerminalOutput,
    CommandType.CLOSE_TERMINAL: TerminalClosed,
    CommandType.CHAT_DEBUG: ChatDebugged,
}
"""The result of each command."""

PUBLIC_COMMANDS: Final = frozenset(
    {
        CommandType.SEND_CHAT,
        CommandType.READ_CHAT,
        CommandType.RESOLVE_ACTION,
        CommandType.SCREENSHOT,
        CommandType.LAUNCH_IDE,
        CommandType.LAUNCH_CLI,
        CommandType.STOP_CLI,
    }
)
"""The types of `POST /daemons/{daemonId}/command`; no other is public."""

READING_COMMANDS: Final = frozenset(
    {
        CommandType.READ_CHAT,
        CommandType.SCREENSHOT,
        CommandType.AGENT_STATUS,
        CommandType.CHAT_DEBUG,
    }
)
"""Those that change nothing on the machine. Any other may, also one that is new."""
