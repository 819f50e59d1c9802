"""The kinds of agents that the scenario runs with."""

from typing import Final

from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.kinds.acp import ACP
from tests.daemon.agents.kinds.aider import AIDER
from tests.daemon.agents.kinds.claude_code import CLAUDE_CODE
from tests.daemon.agents.kinds.codex import CODEX
from tests.daemon.agents.kinds.gemini_cli import GEMINI_CLI
from tests.daemon.agents.kinds.opencode import OPENCODE

KINDS: Final[tuple[AgentKind, ...]] = (CLAUDE_CODE, CODEX, OPENCODE, GEMINI_CLI, AIDER, *ACP)
