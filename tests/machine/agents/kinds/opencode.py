"""opencode, as the tests run it."""

import json
from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind


def seed(home: Path, project: Path, model: str) -> None:
    """Give a HOME the configuration that makes opencode use the model, and ask."""
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Stub",
        "options": {"baseURL": f"{model}/v1", "apiKey": "stub"},
        "models": {"stub-model": {"name": "Stub Model"}},
    }
    settings = {
        "share": "disabled",
        "model": "stub/stub-model",
        "permission": {"bash": "ask", "edit": "ask"},
        "provider": {"stub": provider},
    }
    (folder / "opencode.json").write_text(json.dumps(settings))


def environment(model: str) -> dict[str, str]:
    """Return what keeps opencode from looking for models elsewhere."""
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


OPENCODE: Final = AgentKind(
    type="opencode",
    seed=seed,
    environment=environment,
    trusts=False,
    interrupt=("Escape", "Escape"),
)
