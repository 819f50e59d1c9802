"""The kinds of agents that the scenario runs with."""

from typing import Final

from tests.agents.kind import AgentKind
from tests.agents.kinds.claude_code import CLAUDE_CODE

KINDS: Final[tuple[AgentKind, ...]] = (CLAUDE_CODE,)
"""Claude Code belongs to the tests that always run, the others to `make test-agents`."""
