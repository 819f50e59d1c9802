"""The IDEs, as the tests run them: kinds of agents that the scenario of all agents runs with."""

import json
from pathlib import Path
from typing import Final

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.claude_code import environment as claude_environment
from tests.machine.agents.kinds.claude_code import seed_claude

_NO_TERMINAL: Final = "it has no terminal"
_NO_INTERRUPT: Final = "it has no terminal to interrupt it in"

CANNOT: Final = {
    "test_the_text_of_an_answer_while_it_is_written": "its page is read when its status changes",
    "test_the_tmux_server_is_killed": _NO_TERMINAL,
    "test_what_a_person_types_in_the_terminal_is_seen": _NO_TERMINAL,
    "test_the_model_fails": _NO_INTERRUPT,
    "test_a_turn_that_is_interrupted_is_over": _NO_INTERRUPT,
    "test_an_agent_that_dies_says_so": "it ends as a whole; test_real_ides.py kills its browser",
}
STUB_MODELS: Final = ("Stub Model", "Stub Other")


def _seed_code_server(home: Path, project: Path, model: str) -> None:
    """Give VS Code's own chat models of ours: none of them needs an account."""
    user = home / ".local" / "share" / "code-server" / "User"
    user.mkdir(parents=True)
    models = [
        {
            "id": name.lower().replace(" ", "-"),
            "name": name,
            "url": f"{model}/v1/chat/completions",
            "toolCalling": True,
            "vision": False,
            "maxInputTokens": 128_000,
            "maxOutputTokens": 16_000,
        }
        for name in STUB_MODELS
    ]
    vendor = {"name": "Stub", "vendor": "customendpoint", "apiKey": "x", "models": models}
    (user / "chatLanguageModels.json").write_text(json.dumps([vendor]))


JUPYTERLAB: Final = AgentKind(
    type="jupyterlab",
    seed=seed_claude,
    environment=claude_environment,
    bin="venv/bin:node_modules/.bin",
    offers=("allow_always", "allow_once", "reject_once"),
    trusts=False,
    seconds=30,
    found=15,  # its window must be connected to
    resumes=False,  # it keeps its chats itself
    cannot=CANNOT,
)
CODE_SERVER: Final = AgentKind(
    type="code-server",
    seed=_seed_code_server,
    environment=lambda _: {},
    bin="node/bin:node_modules/.bin",
    offers=("allow_once", "reject_once"),
    records_tools=False,  # its page tells what was run as text of the answer
    trusts=False,
    seconds=30,
    found=15,  # its window must be connected to
    resumes=False,  # it keeps its chats itself
    cannot=CANNOT | {"test_always": "its choices for always stand in a menu, which is not opened"},
)

KINDS: Final = (JUPYTERLAB, CODE_SERVER)
