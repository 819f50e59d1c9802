"""llm chat, as the tests run it: an agent without a transcript, by a provider file alone."""

from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind

PROVIDER: Final = Path(__file__).with_name("llm-chat.toml")

FUNCTIONS: Final = """
import subprocess

def shell(command: str) -> str:
    "Run a shell command."
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.stdout + done.stderr
"""


def seed(home: Path, project: Path, model: str = "") -> None:
    """Give a HOME the stub model, and a tool that the model may use."""
    folder = home / ".config" / "io.datasette.llm"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "default_model.txt").write_text("stub")
    (folder / "extra-openai-models.yaml").write_text(
        "- {model_id: stub, model_name: stub-model, supports_tools: true, "
        f"api_base: '{model}/v1'}}\n"
    )
    (folder / "keys.json").write_text('{"openai": "stub"}')
    (home / "functions.py").write_text(FUNCTIONS)


LLM_CHAT: Final = AgentKind(
    type="llm-chat",
    bin="bin",
    seed=seed,
    environment=lambda model: {"OPENAI_API_KEY": "stub"},
    offers=("allow_once", "reject_once"),
    records_tools=False,
    resumes=False,
    trusts=False,
    retries=False,
    interrupt=("C-c",),
)
