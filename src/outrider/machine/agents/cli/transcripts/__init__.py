"""Transcripts: the records that agents keep of their own chats, which are exact; a screen is not.

    files of the agent ─ Tail ─▶ Reader (one subclass per format) ─ Transcript ─▶ CliAgent
                                                                          └─────▶ StatusDecider

`transcript.py` has the protocol `Transcript`, the base class `Reader` and `Tail`, which reads a
growing file line by line; opencode's reader reads a database instead. A reader has read-only
access: it never writes to the agent's files.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from outrider.machine.agents.cli.transcripts.aider_transcript import AiderTranscript
from outrider.machine.agents.cli.transcripts.claude_transcript import ClaudeTranscript
from outrider.machine.agents.cli.transcripts.codex_transcript import CodexTranscript
from outrider.machine.agents.cli.transcripts.gemini_transcript import GeminiTranscript
from outrider.machine.agents.cli.transcripts.opencode_transcript import OpencodeTranscript
from outrider.machine.agents.cli.transcripts.transcript import Transcript

MakeTranscript = Callable[[Mapping[str, str], Path, str], Transcript]
"""Arguments: the agent's environment, its directory, and the id of its conversation."""

READERS: Final[dict[str, MakeTranscript]] = {
    "aider": AiderTranscript,
    "claude": ClaudeTranscript,
    "codex": CodexTranscript,
    "gemini": GeminiTranscript,
    "opencode": OpencodeTranscript,
}
"""The readers by the value of `record` in a provider file."""
