"""What an agent sends, as text: blocks of content, tool calls and their results, errors."""

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

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
ToolContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

MAX_ERROR: Final = 2000
"""Characters of an agent's error that are told."""

_SHOWN_OF_EDIT: Final = 4000
_MARKS: Final = {"completed": "x", "in_progress": "~", "pending": " "}


def block_text(block: Block) -> str:
    """Return a block as text; of what has none, what it is."""
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
    """Return what a tool call came to."""
    texts = [_tool_content_text(content, terminal_text) for content in contents]
    shown = "\n".join(text for text in texts if text)
    if shown or raw_output is None:
        return shown
    if isinstance(raw_output, dict) and isinstance(raw_output.get("output"), str):
        return str(raw_output["output"])
    return raw_output if isinstance(raw_output, str) else to_json(raw_output)


def question_text(title: str, contents: Iterable[ToolContent]) -> str:
    """Return what a person is to decide about: the call, and what the agent says of it."""
    texts = [title]
    for content in contents:
        match content:
            case FileEditToolCallContent():
                texts.append(f"{content.path}\n{content.new_text[:_SHOWN_OF_EDIT]}")
            case ContentToolCallContent():
                text = block_text(content.content)
                if text not in texts:
                    texts.append(text)
    return "\n".join(text for text in texts if text)


def plan_text(entries: Iterable[PlanEntry]) -> str:
    """Return a plan as a list of ticked and open points."""
    return "\n".join(f"- [{_MARKS[entry.status]}] {entry.content}" for entry in entries)


def error_text(error: RequestError) -> str:
    """Return what an agent's error says, without the wrapping that some agents put around it."""
    text = str(error).removeprefix("Internal error: ")
    if text in {"Internal error", "Error", ""} and isinstance(error.data, dict):
        said = (error.data.get(name) for name in ("message", "details", "error"))
        text = next((s for s in said if isinstance(s, str) and s), text or "unknown error")
    elif text in {"Internal error", "Error", ""} and isinstance(error.data, str):
        text = error.data
    return _unwrapped(text)[:MAX_ERROR]


def to_json(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def _tool_content_text(content: ToolContent, terminal_text: Callable[[str], str]) -> str:
    match content:
        case ContentToolCallContent():
            return block_text(content.content)
        case FileEditToolCallContent():
            return f"{content.path}: {content.new_text.count(chr(10)) + 1} lines"
        case TerminalToolCallContent():
            return terminal_text(content.terminal_id)


def _unwrapped(text: str) -> str:
    """Return the message inside an error that is a model provider's JSON."""
    if not text.startswith("{"):
        return text
    try:
        inner = json.loads(text)
    except ValueError:
        return text
    while isinstance(inner, dict):
        inner = inner.get("error") or inner.get("message")
    return inner if isinstance(inner, str) and inner else text
