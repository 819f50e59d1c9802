"""The kinds of agents that the scenario runs with."""

from typing import Final

from tests.agents.kind import AgentKind
from tests.agents.kinds.acp import ACP
from tests.agents.kinds.aider import AIDER
from tests.agents.kinds.claude_code import CLAUDE_CODE
from tests.agents.kinds.codex import CODEX
from tests.agents.kinds.gemini_cli import GEMINI_CLI
from tests.agents.kinds.opencode import OPENCODE

KINDS: Final[tuple[AgentKind, ...]] = (CLAUDE_CODE, CODEX, OPENCODE, GEMINI_CLI, AIDER, *ACP)
