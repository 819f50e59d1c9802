"""The message that an agent with a transcript is writing, read off its screen for its deltas.

    screen ─ open_message (provider file) ─▶ OpenMessage ─ text ─▶ deltas
                                                 │ id
    transcript ─ the next text of the agent ◀────┘ gets the id, which the journal keeps

No transcript has a message before it is complete (Claude Code, Codex, Gemini CLI, opencode and
aider write it in one piece). So an id is reserved when the screen first shows a text that the
transcript does not have, and the next text of the agent in the transcript gets that id.

The screen shows the end of a long message. What has scrolled off is kept, and joined with what is
shown by the lines that both have.
"""

import re
from typing import Final

from outrider.contract.ids import derived_id
from outrider.machine.agents.cli.transcripts.transcript import Transcript
from outrider.machine.agents.patterns import PatternTimeout, pattern
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.record import SessionRecord

MAX_LINES: Final = 5_000
"""Lines of a message; the deltas of a longer one stop."""

_ANCHOR: Final = 3
"""Lines at the top of the screen by which the position in a message is found again."""

_CODE_FENCE: Final = re.compile(r"^ *```[^\n]*", re.MULTILINE)


class OpenMessage:
    """The message that one agent is writing.

    Args:
        shown: the pattern for it on the screen; `open_message` of the provider file.
        transcript: all calls are made when it has just been read to its end.
    """

    def __init__(
        self, shown: str, transcript: Transcript, record: SessionRecord, journal: Journal
    ) -> None:
        self._pattern = pattern(shown, re.MULTILINE)
        self._transcript = transcript
        self._record = record
        self._journal = journal
        self._id: str | None = None
        self._lines: list[str] = []
        self._indent = 0
        self._after = 0

    def texts(self, screen: str) -> dict[str, str]:
        """Return the text of the open message by its id, as `screen` shows it.

        Empty if there is none, or its beginning was never seen. A screen that does not show the
        message, such as a half-drawn one, changes nothing.
        """
        self.assign_id()
        part = self._read(screen)
        if part is not None:
            self._update(*part)
        text = "\n".join(self._lines).strip()
        return {} if self._id is None or not text else {self._id: text}

    def assign_id(self) -> None:
        """Give the reserved id to the message, if the transcript has it now.

        Called before any message of the transcript is returned, so that none changes its id.
        """
        if self._id is None:
            return
        for piece in self._transcript.pieces(self._after):
            if piece.role == "assistant" and piece.kind == "text":
                self._journal.save_message_id(self._record.id, piece.key, self._id)
            elif not piece.prompt:
                continue  # a thought or a tool call of the same turn
            self.drop()
            return

    def drop(self) -> None:
        """Forget the message: its turn is over, or the transcript has it."""
        self._id, self._lines = None, []

    def _read(self, screen: str) -> tuple[int | None, list[str]] | None:
        """Return the part of the message on the screen; None if the screen shows none.

        The number is the column in which the message begins, None if its beginning is not shown.
        """
        lines = "\n".join(line.rstrip() for line in screen.split("\n")).rstrip("\n") + "\n"
        try:
            match = self._pattern.search(lines)
        except PatternTimeout:
            return None  # logged there
        if match is None:
            return None
        column = match.start("text") - (lines.rfind("\n", 0, match.start("text")) + 1)
        shown = match["text"].rstrip("\n").split("\n")
        if match["start"] is None:
            return None, shown
        shown = self._without_prompt(match["start"], shown)
        return (column, shown) if any(shown) else None

    def _without_prompt(self, start: str, shown: list[str]) -> list[str]:
        """Return the lines without the rest of the user's message, whose first line is in `start`.

        Nothing distinguishes the lines of a wrapped or long message from the answer below it.
        """
        first_letters = _letters(start)
        if not first_letters:
            return shown
        prompts = (piece for piece in reversed(self._transcript.pieces()) if piece.prompt)
        prompt = next(prompts, None)
        rest = "" if prompt is None else _letters(prompt.content)
        if not rest.startswith(first_letters):
            return shown
        rest = rest.removeprefix(first_letters)
        for row, line in enumerate(shown):
            letters = _letters(line)
            if not letters or not rest:
                continue
            if not rest.startswith(letters):
                return shown
            rest = rest.removeprefix(letters)
            if not rest:
                return _without_blank_lines(shown[row + 1 :])
        return [] if rest else shown

    def _update(self, indent: int | None, shown: list[str]) -> None:
        if indent is None:
            self._continue([_dedent(line, self._indent) for line in shown])
            return
        lines = [shown[0], *(_dedent(line, indent) for line in shown[1:])]
        if self._id is None and not self._reserve(lines[0]):
            return
        self._indent, self._lines = indent, lines

    def _continue(self, shown: list[str]) -> None:
        """Replace the end of the text by what is shown now, which begins somewhere within it."""
        text_lines = self._lines
        for start in range(max(0, len(text_lines) - len(shown)), len(text_lines)):
            anchor = text_lines[start : start + _ANCHOR]
            if shown[: len(anchor)] == anchor and any(anchor):
                self._lines = [*text_lines[:start], *shown]
                break
        if len(self._lines) > MAX_LINES:
            self._lines = []

    def _reserve(self, first_line: str) -> bool:
        """Reserve an id, unless the message is the last one that the transcript has."""
        pieces = self._transcript.pieces()
        texts = [piece for piece in pieces if piece.role == "assistant" and piece.kind == "text"]
        if not _letters(first_line):
            return False
        if texts and _letters(texts[-1].content).startswith(_letters(first_line)):
            return False
        self._after = len(pieces)
        # The same after a restart of the daemon, while the message is the same.
        name = f"open message {self._transcript.prompts} {len(texts)}"
        self._id = derived_id("msg", self._record.created_at, self._record.id, name)
        return True


def _without_blank_lines(lines: list[str]) -> list[str]:
    """Return the lines without the blank ones before the first other one."""
    return lines[next((row for row, line in enumerate(lines) if line), len(lines)) :]


def _dedent(line: str, columns: int) -> str:
    return line[columns:] if not line[:columns].strip() else line


def _letters(text: str) -> str:
    """Return the letters and digits of a text, which look the same as Markdown and on a screen."""
    return "".join(filter(str.isalnum, _CODE_FENCE.sub("", text)))
