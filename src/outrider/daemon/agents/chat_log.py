"""The chat with an agent, kept in a file: ids and timestamps stay, over a restart too.

One line of JSON for each thing that happened: a message, more of its text, or another text in
place of it. Streamed text is written a few times a second, not for every piece.
"""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import structlog

from outrider.contract.ids import new_id
from outrider.contract.resources import Message

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["text", "thinking", "tool_call", "tool_result"]

WRITE_AFTER: Final = 0.25
"""Seconds that new text may wait before it is written."""

MAX_CONTENT: Final = 12 * 1024 * 1024
"""Bytes of one message as JSON, so that it fits into a frame; what comes beyond is left out."""

_CUT: Final = "\n[outrider: the rest is left out here]"
_BLOCK: Final = 64 * 1024
_LONGEST_CHARACTER: Final = 6
"""Bytes of a control character as JSON."""

_log = structlog.get_logger(__name__)


class Entry:
    """A message that may still grow. Only its transcript changes it."""

    __slots__ = ("_parts", "cut", "id", "kind", "role", "size", "timestamp", "unsaved")

    def __init__(self, id_: str, role: Role, kind: Kind, timestamp: int, content: str) -> None:
        self.id = id_
        self.role = role
        self.kind = kind
        self.timestamp = timestamp
        self.unsaved: list[str] | None = None  # None: the whole of it
        self.set(content)

    def set(self, content: str) -> None:
        """Put another text in place of it."""
        self._parts: list[str] = []
        self.size = 0
        self.cut = False
        self.unsaved = None
        self.add(content)

    def add(self, text: str) -> None:
        """Append a piece of text."""
        if self.cut:
            return
        size = json_size(text)
        if self.size + size > MAX_CONTENT:
            text, self.cut = _fitting(text, MAX_CONTENT - self.size) + _CUT, True
        self.size += size
        self._parts.append(text)
        if self.unsaved is not None:
            self.unsaved.append(text)

    def restore(self, text: str) -> None:
        """Append what was kept before; it has been cut already where that was due."""
        self.size += json_size(text)
        self._parts.append(text)

    @property
    def content(self) -> str:
        """The whole text."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""


class ChatLog:
    """The messages of one session, oldest first.

    Args:
        path: its file; made with the first message, with mode 0600.
        clock: returns the time in epoch milliseconds.
    """

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        self._path = path
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._unsaved: dict[str, Entry] = {}
        self._saved: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._torn = False
        self._read()

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._entries

    def get(self, message_id: str) -> Entry | None:
        """Return the message with this id, None if there is none."""
        return self._entries.get(message_id)

    def add(self, role: Role, kind: Kind, content: str, message_id: str | None = None) -> Entry:
        """Begin a message."""
        newest = next(reversed(self._entries.values()), None)
        now = max(self._clock(), 0 if newest is None else newest.timestamp)
        entry = Entry(message_id or new_id("msg"), role, kind, now, content)
        self._entries[entry.id] = entry
        self._changed(entry)
        return entry

    def extend(self, entry: Entry, text: str) -> None:
        """Append a piece of text to a message."""
        entry.add(text)
        self._changed(entry)

    def replace(self, entry: Entry, content: str, role: Role | None = None) -> None:
        """Put another text (and role) in place of a message's."""
        if entry.content == content and role in (None, entry.role):
            return
        entry.role = role or entry.role
        entry.set(content)
        self._changed(entry)

    def messages(self) -> list[Message]:
        """Return every message."""
        return [
            Message(
                id=entry.id,
                index=index,
                role=entry.role,
                kind=entry.kind,
                content=entry.content,
                timestamp=entry.timestamp,
            )
            for index, entry in enumerate(self._entries.values())
        ]

    def save(self) -> None:
        """Write what has not been written yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsaved, self._unsaved = self._unsaved, {}
        if not unsaved:
            return
        lines = [json.dumps(self._line(entry)) + "\n" for entry in unsaved.values()]
        if self._torn:
            lines.insert(0, "\n")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(self._path, "a", encoding="ascii", opener=_private) as file:
                file.write("".join(lines))
        except OSError as error:
            _log.error("the chat could not be written", path=str(self._path), error=str(error))
            self._torn = True
            return
        self._torn = False

    def delete(self) -> None:
        """Delete the chat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsaved.clear()
        self._path.unlink(missing_ok=True)

    def _changed(self, entry: Entry) -> None:
        self._unsaved[entry.id] = entry
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_AFTER, self._due)

    def _due(self) -> None:
        self._timer = None
        self.save()

    def _line(self, entry: Entry) -> dict[str, Any]:
        more, entry.unsaved = entry.unsaved, []
        if entry.id not in self._saved:
            self._saved.add(entry.id)
            return {
                "id": entry.id,
                "role": entry.role,
                "kind": entry.kind,
                "timestamp": entry.timestamp,
                "content": entry.content,
            }
        if more is None:
            return {"id": entry.id, "role": entry.role, "content": entry.content}
        return {"id": entry.id, "more": "".join(more)}

    def _read(self) -> None:
        """Read the file; a line that is not whole (the machine went down) is passed over."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("the chat could not be read", path=str(self._path), error=str(error))
            return
        self._torn = bool(data) and not data.endswith(b"\n")
        for line in data.splitlines():
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("a line of a chat was left out", error=str(error))
        for entry in self._entries.values():
            entry.unsaved = []

    def _take(self, line: dict[str, Any]) -> None:
        entry = self._entries.get(line["id"])
        if entry is None:
            entry = Entry(line["id"], line["role"], line["kind"], line["timestamp"], "")
            entry.restore(line["content"])
            self._entries[entry.id] = entry
            self._saved.add(entry.id)
        elif "more" in line:
            entry.restore(line["more"])
        else:
            entry.role = line["role"]
            entry.set("")
            entry.restore(line["content"])


def chat_file(folder: Path, session_id: str) -> Path:
    """Return the file of a session's chat in the folder of all of them."""
    return folder / f"{session_id}.jsonl"


def bounded(text: str) -> str:
    """Return the text of a message, cut where it is longer than `MAX_CONTENT`."""
    if len(text) * _LONGEST_CHARACTER <= MAX_CONTENT or json_size(text) <= MAX_CONTENT:
        return text
    return _fitting(text, MAX_CONTENT) + _CUT


def json_size(text: str) -> int:
    """Return how many bytes a text has as JSON, its quotes aside."""
    return len(msgspec.json.encode(text)) - 2


def _fitting(text: str, room: int) -> str:
    """Return the beginning of a text that has so many bytes as JSON, or a few less."""
    kept = 0
    while (size := json_size(text[kept : kept + _BLOCK])) <= room and kept < len(text):
        room -= size
        kept += _BLOCK
    block = text[kept : kept + _BLOCK]
    while (size := json_size(block)) > room:
        block = block[: len(block) * room // size]
    return text[:kept] + block


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
