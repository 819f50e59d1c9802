"""Claude Code, as the tests run it."""

import json
from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind

KEY: Final = "sk-ant-stub-0123456789abcdefghijklmnop"


def seed_claude(home: Path, project: Path, model: str = "") -> None:
    """Give a HOME what Claude Code would ask for at its first start."""
    (home / ".claude").mkdir(parents=True, exist_ok=True)
    (home / ".claude.json").write_text(
        json.dumps(
            {
                "hasCompletedOnboarding": True,
                "theme": "dark",
                "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
                "projects": {str(project): {"hasTrustDialogAccepted": True}},
            }
        )
    )


def environment(model: str) -> dict[str, str]:
    """Return what Claude Code needs to work with the model at this URL and nothing else."""
    return {
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


CLAUDE_CODE: Final = AgentKind(type="claude-code", seed=seed_claude, environment=environment)
