"""aider, as the tests run it."""

import subprocess
from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind


def seed_aider(home: Path, project: Path, model: str = "") -> None:
    """Give a project the git repository that aider would ask for.

    Of the model it is told to keep its reminders out of the user's messages, which the stub
    model answers with. What other models cost it would fetch, several times over, at every start.
    """
    caches = home / ".aider" / "caches"
    caches.mkdir(parents=True, exist_ok=True)
    (caches / "model_prices_and_context_window.json").write_text('{"stub": {}}')
    (home / ".aider.model.settings.yml").write_text(
        "- {name: openai/stub-model, edit_format: diff, reminder: sys}\n"
    )
    subprocess.run(["git", "init", "--quiet", str(project)], check=True, env={"HOME": str(home)})


def environment(model: str) -> dict[str, str]:
    """Return what aider needs to work with the model at this URL and nothing else."""
    return {
        "OPENAI_API_BASE": f"{model}/v1",
        "OPENAI_API_KEY": "stub",
        "AIDER_MODEL": "openai/stub-model",
        "AIDER_SHOW_MODEL_WARNINGS": "false",
        "AIDER_GITIGNORE": "false",
        "AIDER_ANALYTICS": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


AIDER: Final = AgentKind(
    type="aider",
    bin="bin",
    seed=seed_aider,
    environment=environment,
    offers=("allow_once", "reject_once", "reject_always"),
    records_tools=False,  # its transcript has the command, and not its output
    trusts=False,  # it asks only for a git repository: see test_aider.py
    interrupt=("C-c",),
    cannot={"test_always": "it asks about each command again; only `never` can be chosen"},
)
