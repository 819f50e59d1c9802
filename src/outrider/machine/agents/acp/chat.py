"""Turn an agent's session updates into messages: chunks joined, tool calls with their results.

Agents differ: some give the chunks of a message an id, others do not; some update tool calls that
they never announced. Chunks are joined by what is known of them, and nothing else is assumed.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    SessionNotification,
    TerminalToolCallContent,
    ToolCall,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UsageUpdate,
)
from pydantic import ValidationError

from outrider.contract.events import MAX_EVENT_DIFF
from outrider.contract.resources import FileDiff, FileLocation, Message, Tool, ToolKind, ToolStatus
from outrider.machine.agents.acp.content import (
    ToolContent,
    approval_text,
    block_text,
    edits_in,
    plan_text,
    result_text,
    to_json,
)
from outrider.machine.agents.acp.controls import Controls
from outrider.machine.agents.acp.terminals import AgentTerminals
from outrider.machine.agents.patterns import Pattern
from outrider.machine.agents.tools import bounded, exit_code_in, tool_of
from outrider.machine.sessions.chat_log import ChatLog, Entry

MAX_TOOLS: Final = 512
"""Tool calls that may still be updated; older ones are final."""

_RECENT_UPDATES: Final = 50
_ENDED: Final = frozenset({"completed", "failed"})
_KINDS: Final[dict[str | None, ToolKind]] = {
    "read": "read",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "search": "search",
    "execute": "execute",
    "fetch": "fetch",
}
_STATUSES: Final[dict[str | None, ToolStatus]] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}


@dataclass
class _Open:
    """The message to which the next chunk of its kind belongs, unless their ids differ."""

    entry: Entry
    kind: Literal["text", "thinking"]
    message_id: str | None


@dataclass
class _Tool:
    """A tool call as reported so far, with the messages that show it."""

    id: str
    call: Entry
    title: str = ""
    kind: str | None = None
    raw_input: Any = None
    raw_output: Any = None
    contents: list[ToolContent] = field(default_factory=list)
    result: Entry | None = None
    status: ToolStatus | None = "pending"
    exit_code: int | None = None
    diff: list[FileDiff] = field(default_factory=list)
    locations: list[FileLocation] = field(default_factory=list)

    def as_json(self) -> str:
        """Return the content of the call's message."""
        return to_json(
            {"id": self.id, "name": self.title, "kind": self.kind, "input": self.raw_input}
        )

    def as_resource(self) -> Tool:
        """Return the call in the form of its messages."""
        return tool_of(
            diff=self.diff,
            id=self.id,
            kind=_KINDS.get(self.kind, "other"),
            title=self.title,
            status=self.status,
            exit_code=self.exit_code,
            locations=self.locations,
            started_at=self.call.timestamp,
            ended_at=None if self.result is None else self.result.timestamp,
        )


class AcpChat:
    """Writes what the user and the agent say to the chat log.

    Args:
        chat_log: where the messages go.
        notices: matches texts of the agent program itself, which it sends as if the model
            had said them; None if it sends none.
        terminals: the agent's, whose output and exit codes belong to its tool calls.
        on_change: called after every change.
    """

    def __init__(
        self,
        chat_log: ChatLog,
        notices: Pattern | None,
        terminals: AgentTerminals,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self._chat_log = chat_log
        self._notices = notices
        self._terminals = terminals
        self._open: _Open | None = None
        self._plan: Entry | None = None
        self._tools: OrderedDict[str, _Tool] = OrderedDict()

    def open_texts(self) -> dict[str, str]:
        """Return the texts of the messages that may still grow, by message id."""
        entries = [self._plan, None if self._open is None else self._open.entry]
        return {entry.id: entry.content for entry in entries if entry is not None}

    def completed_messages(self, start: int) -> list[Message]:
        """Return the messages from index `start` on that will not change any more.

        A plan is complete at the end of its turn, a tool call with its result.
        """
        open_ids = {tool.call.id for tool in self._tools.values() if tool.result is None}
        if self._open is not None:
            open_ids.add(self._open.entry.id)
        if self._plan is not None:
            open_ids.add(self._plan.id)
        return self._chat_log.messages(start, exclude=open_ids)

    def add_user_message(self, message_id: str, text: str) -> None:
        """Add a message of the user, with which a turn begins."""
        self._open = self._plan = None
        self._chat_log.add("user", "text", text, message_id)
        self._on_change()

    def add_notice(self, text: str) -> None:
        """Add a system message; if the agent has just said the same, mark that as one instead."""
        last = self._open
        if last is not None and last.kind == "text" and last.entry.content.strip() == text.strip():
            self._chat_log.replace(last.entry, text, role="system")
        else:
            self._chat_log.add("system", "text", text)
        self._open = None
        self._on_change()

    def end_turn(self, outcome: str) -> None:
        """End the turn; tool calls without a result get `outcome` as theirs.

        An agent that ends its turn well does not say how such a call ended.
        """
        # A call without a result would look as if it were running for ever.
        for tool in self._tools.values():
            if tool.result is None:
                tool.status = None if outcome == "end_turn" else "failed"
                self._add_result(tool, "[no result]" if tool.status is None else f"[{outcome}]")
            tool.contents, tool.raw_output = [], None  # kept in the chat log only
        self._open = self._plan = None
        self._chat_log.save()
        self._on_change()

    def end_earlier_turn(self, reason: str) -> None:
        """End the turn of a machine agent that was killed in it."""
        for call in self._chat_log.unfinished_calls():
            assert call.tool is not None
            result = self._chat_log.add("tool", "tool_result", "[cancelled]")
            tool = msgspec.structs.replace(call.tool, status="failed", ended_at=result.timestamp)
            for entry in (call, result):
                self._chat_log.replace(entry, entry.content, tool=tool)
        self.add_notice(reason)

    def add_chunk(self, chunk: AgentMessageChunk | AgentThoughtChunk) -> None:
        """Add a chunk of text or thought."""
        text = block_text(chunk.content)
        if not text:
            return
        kind: Literal["text", "thinking"] = (
            "text" if isinstance(chunk, AgentMessageChunk) else "thinking"
        )
        notices = self._notices
        if kind == "text" and notices and notices.matches(text, otherwise=False):
            self._open = None
            self._chat_log.add("system", "text", text)
            self._on_change()
            return
        current, message_id = self._open, chunk.message_id
        if (
            current is not None
            and current.kind == kind
            and (message_id is None or current.message_id in (None, message_id))
        ):
            self._chat_log.extend(current.entry, text)
        else:
            entry = self._chat_log.add("assistant", kind, text)
            self._open = _Open(entry, kind, message_id)
        self._on_change()

    def set_plan(self, update: AgentPlanUpdate) -> None:
        """Set the plan of this turn; a later plan replaces an earlier one."""
        text = plan_text(update.entries)
        if self._plan is None:
            self._open = None
            self._plan = self._chat_log.add("assistant", "thinking", text)
        else:
            self._chat_log.replace(self._plan, text)
        self._on_change()

    def update_tool_call(self, update: ToolCall | ToolCallUpdate) -> None:
        """Add a tool call or update it, whether or not the agent has announced it."""
        tool = self._tool(update.tool_call_id)
        self._merge(tool, update)
        if update.status in _ENDED or tool.result is not None:
            text = result_text(tool.contents, tool.raw_output, self._terminals.text)
            if update.status == "failed" and not text:
                text = "[failed]"
            self._add_result(tool, text)
        else:
            self._chat_log.replace(tool.call, tool.as_json(), tool=tool.as_resource())
        self._on_change()

    def approval(self, update: ToolCallUpdate) -> tuple[str, list[FileDiff]]:
        """Update the tool call that an agent wants approved.

        Return what a person decides on: a text, and the changes.
        """
        self.update_tool_call(update)
        tool = self._tools[update.tool_call_id]
        command = tool.raw_input.get("command") if isinstance(tool.raw_input, dict) else None
        title = tool.title or "The agent asks for permission"
        if isinstance(command, str) and command not in title:
            title = f"{title}\n{command}"
        return approval_text(title, tool.contents), bounded(tool.diff, MAX_EVENT_DIFF)

    def _add_result(self, tool: _Tool, text: str) -> None:
        """Add the result of a tool call, or replace it if there is another text."""
        if tool.result is None:
            tool.result = self._chat_log.add("tool", "tool_result", text)
        resource = tool.as_resource()
        self._chat_log.replace(tool.call, tool.as_json(), tool=resource)
        self._chat_log.replace(tool.result, text or tool.result.content, tool=resource)

    def _tool(self, tool_call_id: str) -> _Tool:
        tool = self._tools.get(tool_call_id)
        if tool is None:
            self._open = None
            tool = _Tool(tool_call_id, self._chat_log.add("assistant", "tool_call", ""))
            self._tools[tool_call_id] = tool
            # The memory of a session that lives for weeks must not grow with its calls.
            if len(self._tools) > MAX_TOOLS:
                self._tools.popitem(last=False)
        return tool

    def _merge(self, tool: _Tool, update: ToolCall | ToolCallUpdate) -> None:
        tool.title = update.title or tool.title
        tool.kind = update.kind or tool.kind
        if update.raw_input is not None:
            tool.raw_input = update.raw_input
        if update.raw_output is not None:
            tool.raw_output = update.raw_output
        if update.content is not None:
            tool.contents = list(update.content)
            tool.diff = edits_in(tool.contents) or tool.diff  # the result may be a text only
        if update.locations is not None:
            tool.locations = [
                FileLocation(path=place.path, line=place.line) for place in update.locations
            ]
        tool.status = _STATUSES.get(update.status, tool.status)
        codes = [exit_code_in(update.raw_output), *self._exit_codes(tool)]
        tool.exit_code = next((code for code in codes if code is not None), tool.exit_code)

    def _exit_codes(self, tool: _Tool) -> Iterator[int | None]:
        for content in tool.contents:
            if isinstance(content, TerminalToolCallContent):
                yield self._terminals.exit_code(content.terminal_id)


class SessionUpdates:
    """Passes session updates on to the chat and the controls, in order.

    Args:
        session: returns the agent's own id of the session, None while it is not known.
        on_activity: called before an update that shows the agent working on a message.
        on_change: called after a change of what an observation shows.

    Attributes:
        records_chat: whether chat updates are recorded; False while an agent that loads an
            earlier session sends again what the chat log already has.
        title: what the agent calls the session.
        usage: how full its context is.
        recent: the kinds of the newest updates.
        unreadable: the number of updates that could not be decoded.
    """

    def __init__(
        self,
        chat: AcpChat,
        controls: Controls,
        *,
        session: Callable[[], str | None],
        on_activity: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        self._chat = chat
        self._controls = controls
        self._session = session
        self._on_activity = on_activity
        self._on_change = on_change
        self.records_chat = False
        self.title: str | None = None
        self.usage: UsageUpdate | None = None
        self.recent: deque[str] = deque(maxlen=_RECENT_UPDATES)
        self.unreadable = 0

    def handle(self, parameters: Any) -> None:
        """Handle the parameters of one `session/update`."""
        try:
            notification = SessionNotification.model_validate(parameters)
        except ValidationError:
            self.unreadable += 1
            return
        if notification.session_id != (self._session() or notification.session_id):
            return  # another session of the same process, such as that of a subagent
        update = notification.update
        self.recent.append(update.session_update)
        match update:
            case CurrentModeUpdate() | ConfigOptionUpdate():
                self._controls.apply(update)
                self._on_change()
            case SessionInfoUpdate():
                self.title = update.title or self.title
                self._on_change()
            case UsageUpdate():
                self.usage = update
            case _ if not self.records_chat:
                return  # the agent replays an earlier chat, which the chat log has already
            case AgentMessageChunk() | AgentThoughtChunk():
                self._on_activity()
                self._chat.add_chunk(update)
            case ToolCallStart() | ToolCallProgress():
                self._on_activity()
                self._chat.update_tool_call(update)
            case AgentPlanUpdate():
                self._on_activity()
                self._chat.set_plan(update)
