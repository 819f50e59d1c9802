"""The records of all agents that keep one, for tests that are the same for each of them."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.machine.agents.cli.transcripts import READERS
from outrider.machine.agents.cli.transcripts.codex_transcript import THREAD
from outrider.machine.agents.cli.transcripts.transcript import Transcript
from tests.machine.agents.cli.transcripts.test_aider_transcript import START
from tests.machine.agents.cli.transcripts.test_opencode_transcript import SCHEMA

CONVERSATION: Final = "01a1fb19-a5ce-71e0-a75a-426013ed9033"
"""A UUID of the time below."""

TIME: Final = "2026-11-20T22:35:53.818Z"


@dataclass(frozen=True)
class RecordKind:
    """One kind of record.

    Attributes:
        path: its file in a HOME.
        answer: the lines (or rows) that tell of answer number `n`.
        words: the names and values that stand in its JSON.
    """

    name: str
    path: str
    answer: Callable[[int, str], Sequence[Any]]
    words: str
    start: bytes = b""

    def file(self, home: Path) -> Path:
        """Return its file in this HOME, in a folder that exists."""
        file = home / self.path
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def begin(self, home: Path) -> None:
        """Make a record without a message."""
        file = self.file(home)
        if self.name == "opencode":
            with closing(sqlite3.connect(file)) as db:
                db.executescript(SCHEMA)
        else:
            file.write_bytes(self.start)

    def append(self, home: Path, *lines: Any) -> None:
        """Add lines (bytes, or what is JSON in one), or rows (the table, then its values)."""
        file = self.file(home)
        if self.name == "opencode":
            with closing(sqlite3.connect(file)) as db, db:
                for table, *values in lines:
                    marks = ", ".join("?" * len(values))
                    db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", values)
            return
        with file.open("ab") as stream:
            for line in lines:
                stream.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        if self.name == "aider":  # its log tells when each answer came
            with file.with_suffix(".jsonl").open("a") as log:
                log.write('{"event": "message_send", "time": 2000000000}\n' * len(lines))

    def answers(self, home: Path, *texts: str, first: int = 0) -> None:
        """Add answers of the model."""
        self.append(
            home,
            *(line for n, text in enumerate(texts, first) for line in self.answer(n, text)),
        )

    def reader(self, home: Path) -> Transcript:
        """Return a reader that has read nothing yet."""
        environment = {"HOME": str(home), THREAD: CONVERSATION}
        return READERS[self.name](environment, CONVERSATION)


def _claude(number: int, text: str) -> Sequence[Any]:
    return [
        {
            "type": "assistant",
            "uuid": f"u{number}",
            "parentUuid": None,
            "timestamp": TIME,
            "message": {"content": [{"type": "text", "text": text}]},
        }
    ]


def _codex(number: int, text: str) -> Sequence[Any]:
    payload = {"type": "message", "role": "assistant", "content": text}
    return [{"timestamp": TIME, "ordinal": number, "type": "response_item", "payload": payload}]


def _gemini(number: int, text: str) -> Sequence[Any]:
    return [{"id": f"g{number}", "timestamp": TIME, "type": "gemini", "content": text}]


def _aider(number: int, text: str) -> Sequence[Any]:
    return [f"\n{text}\n\n> Tokens: 1 sent, 1 received.  \n".encode()]


def _opencode(number: int, text: str) -> Sequence[Any]:
    session, at = f"ses_{CONVERSATION}", 10_000 + number
    message = json.dumps({"role": "assistant", "time": {"created": at, "completed": at}})
    part = json.dumps({"type": "text", "text": text, "time": {"start": at, "end": at}})
    return [
        ("message", f"m{number:09}", session, at, at, message),
        ("part", f"p{number:09}", f"m{number:09}", session, at, at, part),
    ]


KINDS: Final = [
    RecordKind(
        "claude",
        f".claude/projects/x/{CONVERSATION}.jsonl",
        _claude,
        "type subtype uuid parentUuid timestamp message content aiTitle isSidechain isMeta "
        "isCompactSummary isApiErrorMessage model text thinking id name input tool_use_id is_error "
        "toolUseResult structuredPatch filePath oldStart newStart lines stdout interrupted create "
        "tool_use tool_result user assistant system turn_duration attachment <synthetic>",
    ),
    RecordKind(
        "codex",
        f".codex/sessions/2026/11/20/rollout-2026-11-20T22-35-24-{CONVERSATION}.jsonl",
        _codex,
        "timestamp ordinal type payload role content summary name call_id arguments input action "
        "output turn_id item model error text id message UserMessage item_completed "
        "task_started turn_aborted task_complete turn_context event_msg response_item assistant "
        "reasoning function_call function_call_output exec_command_end patch_apply_end exit_code "
        "success changes unified_diff add apply_patch command",
    ),
    RecordKind(
        "gemini",
        f".gemini/tmp/x/chats/session-2026-11-20T22-34-{CONVERSATION[:8]}.jsonl",
        _gemini,
        "sessionId $set messages summary id type timestamp content displayContent thoughts subject "
        "description toolCalls name args result functionResponse response output error model "
        "user gemini info warning text <session_context> status success cancelled resultDisplay "
        "filePath originalContent newContent isNewFile replace run_shell_command",
        json.dumps({"sessionId": CONVERSATION}).encode() + b"\n",
    ),
    RecordKind(
        "aider",
        f".aider/chats/{CONVERSATION}.md",
        _aider,
        "#### > Tokens: sent, received. litellm.Error: ^C (Y)es/(N)o [Yes]: y Model: a with "
        "# aider chat started at 2026-11-20 22:00:00 Cost",
        START.encode(),
    ),
    RecordKind(
        "opencode",
        ".local/share/opencode/opencode.db",
        _opencode,
        "role time finish error modelID summary type text synthetic tool callID state status input "
        "output start end created completed user assistant reasoning running pending name data "
        "message stop tool-calls unknown MessageAbortedError",
    ),
]
