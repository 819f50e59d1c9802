"""Format what an agent sends as text: content blocks, tool calls and results, errors."""

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from acp import RequestError
from acp.schema import (
    AudioContentBlock,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ImageContentBlock,
    PlanEntry,
    ResourceContentBlock,
    TerminalToolCallContent,
    TextContentBlock,
    TextResourceContents,
)

from outrider.contract.resources import FileDiff
from outrider.machine.agents.tools import file_diff

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
ToolContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

MAX_ERROR: Final = 2000
"""Characters of an agent's error that are passed on."""

_SHOWN_OF_EDIT: Final = 4000
_MARKS: Final = {"completed": "x", "in_progress": "~", "pending": " "}


def block_text(block: Block) -> str:
    """Return a block as text; for one without text, its type or address."""
    match block:
        case TextContentBlock():
            return block.text
        case ImageContentBlock() | AudioContentBlock():
            return f"[{block.type}: {block.mime_type}]"
        case ResourceContentBlock():
            return block.uri
        case EmbeddedResourceContentBlock():
            resource = block.resource
            return resource.text if isinstance(resource, TextResourceContents) else resource.uri


def result_text(
    contents: Iterable[ToolContent], raw_output: Any, terminal_text: Callable[[str], str]
) -> str:
    """Return the result of a tool call."""
    texts = [_tool_content_text(content, terminal_text) for content in contents]
    shown = "\n".join(text for text in texts if text)
    if shown or raw_output is None:
        return shown
    if isinstance(raw_output, dict) and isinstance(raw_output.get("output"), str):
        return str(raw_output["output"])
    return raw_output if isinstance(raw_output, str) else to_json(raw_output)


def approval_text(title: str, contents: Iterable[ToolContent]) -> str:
    """Return what a person is to decide on: the call, and what the agent says about it."""
    texts = [title]
    for content in contents:
        match content:
            case FileEditToolCallContent():
                texts.append(f"{content.path}\n{_edit_text(content)}")
            case ContentToolCallContent():
                text = block_text(content.content)
                if text not in texts:
                    texts.append(text)
    return "\n".join(text for text in texts if text)


def plan_text(entries: Iterable[PlanEntry]) -> str:
    """Return a plan as a Markdown task list."""
    return "\n".join(f"- [{_MARKS[entry.status]}] {entry.content}" for entry in entries)


def error_text(error: RequestError) -> str:
    """Return the message of an agent's error, unwrapped: some agents nest it in others."""
    # Agents put the reason anywhere: in the message, in `data` as text or as an object, or
    # as the JSON that a model's provider answered.
    text = str(error).removeprefix("Internal error: ")
    if text in {"Internal error", "Error", ""} and isinstance(error.data, dict):
        messages = (error.data.get(name) for name in ("message", "details", "error"))
        text = next((s for s in messages if isinstance(s, str) and s), text or "unknown error")
    elif text in {"Internal error", "Error", ""} and isinstance(error.data, str):
        text = error.data
    return _unwrap(text)[:MAX_ERROR]


def to_json(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def edits_in(contents: Iterable[ToolContent]) -> list[FileDiff]:
    """Return what a tool call changes."""
    return [
        file_diff(content.path, content.old_text, content.new_text)
        for content in contents
        if isinstance(content, FileEditToolCallContent)
    ]


def _edit_text(edit: FileEditToolCallContent) -> str:
    """Return what an edit changes: as a unified diff, or the whole text of a new file."""
    if not edit.old_text:
        return _shortened(edit.new_text)
    patch = file_diff(edit.path, edit.old_text, edit.new_text).patch
    return _shortened("\n".join(patch.split("\n")[2:-1]))  # without the names of the file


def _shortened(text: str) -> str:
    hidden = len(text) - _SHOWN_OF_EDIT
    if hidden <= 0:
        return text
    return f"{text[:_SHOWN_OF_EDIT]}\n[outrider: {hidden} more characters are not shown]"


def _tool_content_text(content: ToolContent, terminal_text: Callable[[str], str]) -> str:
    match content:
        case ContentToolCallContent():
            return block_text(content.content)
        case FileEditToolCallContent():
            return f"{content.path}: {content.new_text.count(chr(10)) + 1} lines"
        case TerminalToolCallContent():
            return terminal_text(content.terminal_id)


def _unwrap(text: str) -> str:
    """Return the message inside an error that is the JSON of a model provider."""
    if not text.startswith("{"):
        return text
    try:
        inner = json.loads(text)
    except ValueError:
        return text
    while isinstance(inner, dict):
        inner = inner.get("error") or inner.get("message")
    return inner if isinstance(inner, str) and inner else text
