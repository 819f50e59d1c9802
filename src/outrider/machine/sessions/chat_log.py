"""The chat log of one session: a file, so that ids and timestamps survive a restart.

Each line of the file is one JSON object: a new message, more text of a message (`more`), or the
replacement of its text and role. Later lines override earlier ones. Streamed text is written in
batches, at most every `WRITE_AFTER` seconds, so a crash can lose that much of it.
"""

import asyncio
import json
import os
from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from outrider.contract.ids import new_id
from outrider.contract.resources import Message, MessageKind, MessageSource, Role, Tool

WRITE_AFTER: Final = 0.25
"""Seconds between a change and its write to the file, at most."""

MAX_CONTENT: Final = 12 * 1024 * 1024
"""Bytes of one message as JSON, so that it fits into a frame; longer messages are truncated."""

_TRUNCATION_NOTE: Final = "\n[outrider: the rest is left out here]"

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class Entry:
    """A message that may still grow. Only `ChatLog` changes it.

    Attributes:
        unsaved: the text that was added since the last save; None: save the whole content.
    """

    id: str
    role: Role
    kind: MessageKind
    timestamp: int
    max_content: int
    tool: Tool | None = None
    source: MessageSource | None = None
    unsaved: list[str] | None = None
    _parts: list[str] = field(default_factory=list)
    _size: int = 0
    _is_truncated: bool = False

    def set(self, content: str) -> None:
        """Replace the content."""
        self._parts, self._size, self._is_truncated = [], 0, False
        self.unsaved = None
        self.add(content)

    def add(self, text: str) -> None:
        """Append text; text beyond `max_content` is dropped, with a note."""
        if self._is_truncated:
            return
        size = json_size(text)
        if self._size + size > self.max_content:
            text, self._is_truncated = _longest_prefix(text, self.max_content - self._size), True
            text += _TRUNCATION_NOTE
        self._size += size
        self._parts.append(text)
        if self.unsaved is not None:
            self.unsaved.append(text)

    def restore(self, text: str) -> None:
        """Append text from the file, which was truncated before it was written."""
        self._size += json_size(text)
        self._parts.append(text)

    @property
    def content(self) -> str:
        """The complete text."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""


class ChatLog:
    """The messages of one session, oldest first.

    Args:
        path: its file, created with mode 0600 when the first message is saved.
        clock: returns the time in epoch milliseconds.
        max_content: bytes of a message as JSON; the rest of a longer one is dropped.
    """

    def __init__(
        self, path: Path, clock: Callable[[], int], max_content: int = MAX_CONTENT
    ) -> None:
        self._max_content = max_content
        self._path = path
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._unsaved: dict[str, Entry] = {}
        self._saved_ids: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ends_mid_line = False
        self._read()

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._entries

    def get(self, message_id: str) -> Entry | None:
        """Return the message with this id, None if there is none."""
        return self._entries.get(message_id)

    def add(
        self,
        role: Role,
        kind: MessageKind,
        content: str,
        message_id: str | None = None,
        *,
        source: MessageSource | None = None,
    ) -> Entry:
        """Add a message; its timestamp is never before that of the newest message."""
        newest = next(reversed(self._entries.values()), None)
        now = max(self._clock(), 0 if newest is None else newest.timestamp)
        entry = Entry(message_id or new_id("msg"), role, kind, now, self._max_content)
        entry.source = source
        entry.set(content)
        self._entries[entry.id] = entry
        self._schedule_save(entry)
        return entry

    def extend(self, entry: Entry, text: str) -> None:
        """Append text to a message."""
        entry.add(text)
        self._schedule_save(entry)

    def replace(
        self, entry: Entry, content: str, role: Role | None = None, tool: Tool | None = None
    ) -> None:
        """Replace the text of a message, and its role or its tool call if one is given."""
        if entry.content == content and role in (None, entry.role) and tool in (None, entry.tool):
            return
        entry.role = role or entry.role
        entry.tool = tool or entry.tool
        entry.set(content)
        self._schedule_save(entry)

    def unfinished_calls(self) -> list[Entry]:
        """Return the tool calls that have not ended."""
        return [
            entry
            for entry in self._entries.values()
            if entry.kind == "tool_call"
            and entry.tool is not None
            and entry.tool.status in {"pending", "running"}
        ]

    def messages(self, start: int = 0, *, exclude: Container[str] = ()) -> list[Message]:
        """Return the messages from index `start` on, oldest first, without those of `exclude`."""
        return [
            Message(
                id=entry.id,
                index=index,
                role=entry.role,
                kind=entry.kind,
                content=entry.content,
                timestamp=entry.timestamp,
                tool=entry.tool,
                source=entry.source,
            )
            for index, entry in enumerate(islice(self._entries.values(), start, None), start)
            if entry.id not in exclude
        ]

    def save(self) -> None:
        """Write all unsaved changes now.

        A write error is logged, not raised: what was not written is written with the next change.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsaved = self._unsaved.values()
        if not unsaved:
            return
        lines = [json.dumps(self._line(entry)) + "\n" for entry in unsaved]
        if self._ends_mid_line:
            # A write that failed half-way left a partial line. End it, so that only that line
            # is unreadable, and not also the first one that is written now.
            lines.insert(0, "\n")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self._path, "a", encoding="ascii", opener=_open_private) as file:
                file.write("".join(lines))
        except OSError as error:
            _log.error("chat log write failed", path=str(self._path), error=str(error))
            self._ends_mid_line = True
            for entry in unsaved:  # some lines may have been written: write the whole messages
                entry.unsaved = None
            return
        self._ends_mid_line = False
        self._saved_ids.update(self._unsaved)
        self._unsaved = {}

    def _schedule_save(self, entry: Entry) -> None:
        self._unsaved[entry.id] = entry
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_AFTER, self.save)

    def _line(self, entry: Entry) -> dict[str, Any]:
        more, entry.unsaved = entry.unsaved, []
        tool = {} if entry.tool is None else {"tool": msgspec.to_builtins(entry.tool)}
        if entry.id not in self._saved_ids:
            return {
                "id": entry.id,
                "role": entry.role,
                "kind": entry.kind,
                "timestamp": entry.timestamp,
                "content": entry.content,
                **({} if entry.source is None else {"source": entry.source}),
                **tool,
            }
        if more is None:
            return {"id": entry.id, "role": entry.role, "content": entry.content, **tool}
        return {"id": entry.id, "more": "".join(more)}

    def _read(self) -> None:
        """Read the file; skip incomplete lines, which a crash or a full disk leaves behind."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("chat log read failed", path=str(self._path), error=str(error))
            return
        self._ends_mid_line = bool(data) and not data.endswith(b"\n")
        for line in data.splitlines():
            try:
                self._restore_line(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("chat log line skipped", error=str(error))
        for entry in self._entries.values():
            entry.unsaved = []

    def _restore_line(self, line: dict[str, Any]) -> None:
        entry = self._entries.get(line["id"])
        if entry is None:
            entry = Entry(
                line["id"], line["role"], line["kind"], line["timestamp"], self._max_content
            )
            entry.source = msgspec.convert(line.get("source"), MessageSource | None)
            entry.restore(line["content"])
            self._entries[entry.id] = entry
            self._saved_ids.add(entry.id)
        elif "more" in line:
            entry.restore(line["more"])
        else:
            entry.role = line["role"]
            entry.set("")
            entry.restore(line["content"])
        entry.tool = msgspec.convert(line.get("tool"), Tool | None) or entry.tool


def chat_file(folder: Path, session_id: str) -> Path:
    """Return the path of a session's chat log in the folder of all chat logs."""
    return folder / f"{session_id}.jsonl"


def truncate_content(
    text: str, max_content: int = MAX_CONTENT, note: str = _TRUNCATION_NOTE
) -> str:
    """Return the text of a message, truncated with a note if it exceeds `max_content` bytes."""
    if json_size(text) <= max_content:
        return text
    return _longest_prefix(text, max_content) + note


def json_size(text: str) -> int:
    """Return the size of a text as JSON in bytes, without its quotes."""
    return len(msgspec.json.encode(text)) - 2


def _longest_prefix(text: str, room: int) -> str:
    """Return the longest prefix of `text` that has at most `room` bytes as JSON."""
    text = text[:room]  # a character has at least one byte
    length = bisect_right(range(len(text)), room, key=lambda last: json_size(text[: last + 1]))
    return text[:length]


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
