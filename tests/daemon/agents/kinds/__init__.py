"""The kinds of agents that the scenario runs with.

`llm_chat.py` is not one of them: that agent has no transcript, and tests of its own
(`tests/daemon/agents/cli/test_llm_chat.py`). IDEs are in `tests/daemon/agents/ide/kinds.py`.
"""

from typing import Final

from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.kinds.acp import ACP
from tests.daemon.agents.kinds.aider import AIDER
from tests.daemon.agents.kinds.claude_code import CLAUDE_CODE
from tests.daemon.agents.kinds.codex import CODEX
from tests.daemon.agents.kinds.gemini_cli import GEMINI_CLI
from tests.daemon.agents.kinds.opencode import OPENCODE

KINDS: Final[tuple[AgentKind, ...]] = (CLAUDE_CODE, CODEX, OPENCODE, GEMINI_CLI, AIDER, *ACP)
