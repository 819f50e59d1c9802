"""The kinds of agents that the scenario runs with.

`llm_chat.py` is not one of them: that agent has no transcript, and tests of its own
(`tests/machine/agents/cli/test_llm_chat.py`). IDEs are in `tests/machine/agents/ide/kinds.py`.
"""

from typing import Final

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.acp import ACP
from tests.machine.agents.kinds.aider import AIDER
from tests.machine.agents.kinds.claude_code import CLAUDE_CODE
from tests.machine.agents.kinds.codex import CODEX
from tests.machine.agents.kinds.gemini_cli import GEMINI_CLI
from tests.machine.agents.kinds.opencode import OPENCODE

KINDS: Final[tuple[AgentKind, ...]] = (CLAUDE_CODE, CODEX, OPENCODE, GEMINI_CLI, AIDER, *ACP)
