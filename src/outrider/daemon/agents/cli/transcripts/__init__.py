"""Readers of the records that agents keep of their own chats: exact where a screen is lossy."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from outrider.daemon.agents.cli.transcripts.aider_transcript import AiderTranscript
from outrider.daemon.agents.cli.transcripts.claude_transcript import ClaudeTranscript
from outrider.daemon.agents.cli.transcripts.codex_transcript import CodexTranscript
from outrider.daemon.agents.cli.transcripts.gemini_transcript import GeminiTranscript
from outrider.daemon.agents.cli.transcripts.opencode_transcript import OpencodeTranscript
from outrider.daemon.agents.cli.transcripts.transcript import Transcript

MakeTranscript = Callable[[Mapping[str, str], Path, str], Transcript]
"""Takes the agent's environment, its directory and the id of its conversation."""

READERS: Final[dict[str, MakeTranscript]] = {
    "aider": AiderTranscript,
    "claude": ClaudeTranscript,
    "codex": CodexTranscript,
    "gemini": GeminiTranscript,
    "opencode": OpencodeTranscript,
}
"""By the name that `record` has in a provider file."""
