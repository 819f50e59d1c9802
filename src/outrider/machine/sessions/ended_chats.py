"""The chats of ended sessions: the machine's own copy, so that no agent is needed to read them.

A copy is a file of the format of `ChatLog`, under the name that the session's chat log has while
it runs. So an agent without a transcript, which writes that log itself, continues it after a
resume, and every message keeps its id. The files are readable by their owner only.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from outrider.contract.resources import Message
from outrider.machine.sessions.chat_log import ChatLog, chat_file

MAX_ENDED: Final = 1000
"""Ended sessions that a machine keeps, whatever their size."""


@dataclass(frozen=True)
class HistoryLimits:
    """What a machine keeps of ended sessions; the oldest go first.

    Attributes:
        days: how long after the end.
        size: bytes of all chats together.
        count: sessions.
    """

    days: float = 90
    size: int = 1024 * 1024 * 1024
    count: int = MAX_ENDED


class EndedChats:
    """The folder with the chats. All methods block: call them on a thread.

    Args:
        folder: created with mode 0700 if it is missing.
        limits: what `excess` goes by.
    """

    def __init__(self, folder: Path, limits: HistoryLimits | None = None) -> None:
        self._folder = folder
        self._limits = limits or HistoryLimits()

    def save(self, session_id: str, chats: Mapping[str, Sequence[Message]], main: str) -> None:
        """Write the chats of a session's agents, in place of earlier copies.

        Args:
            chats: by the agent's type; an empty one is left out.
            main: the type of the session, whose agent's chat has the session's name.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for agent, messages in chats.items():
            if messages:
                _write(self._path(session_id, agent, main), messages)

    def read(self, session_id: str, agent: str, main: str) -> list[Message]:
        """Return the chat of an agent, oldest first; empty if there is none."""
        return ChatLog(self._path(session_id, agent, main), lambda: 0).messages()

    def excess(self, ends: Mapping[str, int], now: int) -> list[str]:
        """Return the ids of the sessions to delete.

        Args:
            ends: by session id, when it ended in epoch milliseconds.
        """
        oldest = now - self._limits.days * 86_400_000
        sizes = self._sizes()
        used, newest_first = 0, sorted(ends, key=lambda session_id: ends[session_id], reverse=True)
        for count, session_id in enumerate(newest_first):
            used += sizes[session_id]
            is_old = ends[session_id] < oldest
            if is_old or used > self._limits.size or count == self._limits.count:
                return newest_first[count:]
        return []

    def delete(self, session_id: str) -> None:
        """Delete a session's files."""
        for path in self._files(session_id):
            path.unlink(missing_ok=True)

    def delete_others(self, session_ids: Iterable[str]) -> None:
        """Delete the files of sessions other than these: a killed daemon may have left them."""
        ids = set(session_ids)
        for path in self._folder.glob("session_*.jsonl"):
            if path.name.partition(".")[0] not in ids:
                path.unlink(missing_ok=True)

    def _path(self, session_id: str, agent: str, main: str) -> Path:
        name = session_id if agent == main else f"{session_id}.{quote(agent, safe='')}"
        return chat_file(self._folder, name)

    def _sizes(self) -> Counter[str]:
        """Return the bytes of each session's files, reading the folder once."""
        sizes: Counter[str] = Counter()
        if not self._folder.is_dir():
            return sizes
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a session that is deleted now
                    sizes[entry.name.partition(".")[0]] += entry.stat().st_size
        return sizes

    def _files(self, session_id: str) -> list[Path]:
        return [
            *self._folder.glob(f"{session_id}.jsonl"),
            *self._folder.glob(f"{session_id}.*.jsonl"),
        ]


def _write(path: Path, messages: Sequence[Message]) -> None:
    """Replace a file as a whole: a daemon that is killed meanwhile leaves the earlier one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".chat-")  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            for message in messages:
                file.write(json.dumps(msgspec.to_builtins(message)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
