"""Codex, as the tests run it."""

from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind

CONFIG = """
model = "stub-model"
model_provider = "stub"
check_for_update_on_startup = false

[model_providers.stub]
name = "stub"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "STUB_KEY"

[projects."{project}"]
trust_level = "trusted"
"""


def seed(home: Path, project: Path, model: str) -> None:
    """Give a HOME what Codex would ask for at its first start."""
    folder = home / ".codex"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.format(model=model, project=project))


def environment(model: str) -> dict[str, str]:
    """Return what Codex needs to work with the model."""
    return {"STUB_KEY": "stub"}


CODEX: Final = AgentKind(type="codex", seed=seed, environment=environment, trims=True)
