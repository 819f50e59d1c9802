"""Transcripts: the records that agents keep of their own chats, which are exact; a screen is not.

    files of the agent ─ Tail ─▶ Transcript (one subclass per format) ─▶ RecordedChat, StatusDecider

`transcript.py` has the base class, and `Tail`, which reads a growing file line by line; opencode's
reader reads a database instead. A reader never writes to the agent's files.
"""

from collections.abc import Callable, Mapping
from typing import Final

from outrider.machine.agents.cli.transcripts.aider_transcript import AiderTranscript
from outrider.machine.agents.cli.transcripts.claude_transcript import ClaudeTranscript
from outrider.machine.agents.cli.transcripts.codex_transcript import CodexTranscript
from outrider.machine.agents.cli.transcripts.gemini_transcript import GeminiTranscript
from outrider.machine.agents.cli.transcripts.opencode_transcript import OpencodeTranscript
from outrider.machine.agents.cli.transcripts.transcript import Transcript

READERS: Final[dict[str, Callable[[Mapping[str, str], str], Transcript]]] = {
    "aider": AiderTranscript,
    "claude": ClaudeTranscript,
    "codex": CodexTranscript,
    "gemini": GeminiTranscript,
    "opencode": OpencodeTranscript,
}
"""The readers by the value of `record` in a provider file.

Arguments: the agent's environment, and the id of its conversation.
"""
