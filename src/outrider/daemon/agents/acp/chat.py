"""From an agent's stream of updates to messages: pieces joined, tool calls with their results.

Some agents give a piece's message an id, others do not; some update tool calls that they never
began. What belongs together is told by what is known, and nothing is taken for granted.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ToolCall,
    ToolCallUpdate,
)

from outrider.daemon.agents.acp.content import (
    ToolContent,
    block_text,
    plan_text,
    question_text,
    result_text,
    to_json,
)
from outrider.daemon.agents.transcript import Entry, Transcript

MAX_TOOLS: Final = 512
"""Tool calls that may still be updated; older ones are taken as they are."""

_ENDED: Final = frozenset({"completed", "failed"})


@dataclass
class _Open:
    """The message that the next piece of its kind belongs to."""

    entry: Entry
    kind: Literal["text", "thinking"]
    native: str | None


@dataclass
class _Tool:
    """A tool call as it has been told so far, with the messages that show it."""

    id: str
    call: Entry
    title: str = ""
    kind: str | None = None
    raw_input: Any = None
    raw_output: Any = None
    contents: list[ToolContent] = field(default_factory=list)
    result: Entry | None = None

    def shown(self) -> str:
        """Return the call as its message shows it."""
        return to_json(
            {"id": self.id, "name": self.title, "kind": self.kind, "input": self.raw_input}
        )


class Chat:
    """Takes what is said; keeps it in a transcript.

    Args:
        transcript: where the messages go.
        notices: texts of the agent program itself, which it sends as if the model had said
            them; None if it sends none.
        terminal_text: returns what a terminal of the agent printed.
    """

    def __init__(
        self,
        transcript: Transcript,
        notices: re.Pattern[str] | None,
        terminal_text: Callable[[str], str],
    ) -> None:
        self._transcript = transcript
        self._notices = notices
        self._terminal_text = terminal_text
        self._open: _Open | None = None
        self._plan: Entry | None = None
        self._tools: OrderedDict[str, _Tool] = OrderedDict()

    def user_said(self, message_id: str, text: str) -> None:
        """Take a message of the user: a turn begins."""
        self._open = self._plan = None
        self._transcript.add("user", "text", text, message_id)

    def noted(self, text: str) -> None:
        """Take what the user must know about the session, unless the agent has just said it."""
        last = self._open
        if last is not None and last.kind == "text" and last.entry.content.strip() == text.strip():
            self._transcript.replace(last.entry, text, role="system")
        else:
            self._transcript.add("system", "text", text)
        self._open = None

    def turn_ended(self, how: str) -> None:
        """Take the end of a turn; tool calls that have not ended were given up, `how` tells why."""
        for tool in self._tools.values():
            if tool.result is None:
                tool.result = self._transcript.add("tool", "tool_result", f"[{how}]")
            tool.contents, tool.raw_output = [], None  # the transcript has them
        self._open = self._plan = None
        self._transcript.save()

    def said(self, chunk: AgentMessageChunk | AgentThoughtChunk) -> None:
        """Take a piece of text or thought."""
        text = block_text(chunk.content)
        if not text:
            return
        kind: Literal["text", "thinking"] = (
            "text" if isinstance(chunk, AgentMessageChunk) else "thinking"
        )
        if self._notices is not None and kind == "text" and self._notices.search(text):
            self._open = None
            self._transcript.add("system", "text", text)
            return
        current, native = self._open, chunk.message_id
        if (
            current is not None
            and current.kind == kind
            and (current.native == native or current.native is None or native is None)
        ):
            self._transcript.extend(current.entry, text)
        else:
            self._open = _Open(self._transcript.add("assistant", kind, text), kind, native)

    def planned(self, update: AgentPlanUpdate) -> None:
        """Take a plan; a turn's later plan stands in place of its earlier one."""
        text = plan_text(update.entries)
        if self._plan is None:
            self._open = None
            self._plan = self._transcript.add("assistant", "thinking", text)
        else:
            self._transcript.replace(self._plan, text)

    def called(self, update: ToolCall | ToolCallUpdate) -> None:
        """Take a tool call, or what has changed about it, whether or not it was begun."""
        tool = self._tool(update.tool_call_id)
        self._merge(tool, update)
        self._transcript.replace(tool.call, tool.shown())
        if update.status in _ENDED or tool.result is not None:
            text = result_text(tool.contents, tool.raw_output, self._terminal_text)
            if update.status == "failed" and not text:
                text = "[failed]"
            if tool.result is None:
                tool.result = self._transcript.add("tool", "tool_result", text)
            elif text:
                self._transcript.replace(tool.result, text)

    def question(self, update: ToolCallUpdate) -> str:
        """Take the tool call that an agent asks about; return what a person is to decide."""
        self.called(update)
        tool = self._tools[update.tool_call_id]
        command = tool.raw_input.get("command") if isinstance(tool.raw_input, dict) else None
        title = tool.title or "The agent asks for permission"
        if isinstance(command, str) and command not in title:
            title = f"{title}\n{command}"
        return question_text(title, tool.contents)

    def _tool(self, tool_call_id: str) -> _Tool:
        tool = self._tools.get(tool_call_id)
        if tool is None:
            self._open = None
            tool = _Tool(tool_call_id, self._transcript.add("assistant", "tool_call", ""))
            self._tools[tool_call_id] = tool
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
