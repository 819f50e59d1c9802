"""Gemini CLI, as the tests run it."""

import json
from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind


def seed_gemini(home: Path, project: Path, model: str = "") -> None:
    """Give a HOME what Gemini CLI would ask for at its first start."""
    folder = home / ".gemini"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "trustedFolders.json").write_text(json.dumps({str(project): "TRUST_FOLDER"}))


def environment(model: str) -> dict[str, str]:
    """Return what Gemini CLI needs to work with the model at this URL and nothing else."""
    return {
        "GEMINI_API_KEY": "stub",
        "GOOGLE_GEMINI_BASE_URL": model,
        "GEMINI_MODEL": "gemini-2.5-pro",
    }


GEMINI_CLI: Final = AgentKind(type="gemini-cli", seed=seed_gemini, environment=environment)
