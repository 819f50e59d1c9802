"""The agents that speak the Agent Client Protocol, as the tests run them."""

import json
from pathlib import Path
from typing import Any, Final

from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.claude_code import environment as claude_environment

_NO_TERMINAL: Final = "it has no terminal"
_NO_INTERRUPT: Final = "it has no terminal to interrupt it in"
_SILENCE: Final = 5  # the protocol says when a turn is over: nothing is guessed from a clock
_ENDS: Final = "it ends with its daemon: see tests/machine/agents/acp/test_restart.py"

CANNOT: Final = {
    "test_the_tmux_server_is_killed": _NO_TERMINAL,
    "test_what_a_person_types_in_the_terminal_is_seen": _NO_TERMINAL,
    "test_the_model_fails": _NO_INTERRUPT,
    "test_a_turn_that_is_interrupted_is_over": _NO_INTERRUPT,
    "test_a_daemon_that_is_killed_in_the_middle_of_a_turn": _ENDS,
    "test_a_daemon_that_is_killed_while_the_agent_asks": _ENDS,
}


def _nothing(home: Path, project: Path, model: str) -> None:
    home.mkdir()


def _seed_codex(home: Path, project: Path, model: str) -> None:
    (home / ".codex").mkdir(parents=True)
    # Of a model that it does not know it complains before every answer.
    (home / ".codex" / "config.toml").write_text(
        'model = "gpt-5.4"\nmodel_provider = "stub"\n'
        'approval_policy = "on-request"\nsandbox_mode = "read-only"\n'
        f'[model_providers.stub]\nname = "stub"\nbase_url = "{model}/v1"\n'
        'wire_api = "responses"\nenv_key = "STUB_KEY"\n'
    )


def _seed_gemini(home: Path, project: Path, model: str) -> None:
    (home / ".gemini").mkdir(parents=True)
    # It takes ten thousand lines that are alike for a loop, and ends the turn.
    settings = {"model": {"disableLoopDetection": True}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))


def _seed_opencode(home: Path, project: Path, model: str) -> None:
    provider: dict[str, Any] = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Stub",
        "options": {"baseURL": f"{model}/v1", "apiKey": "x"},
        "models": {"stub-model": {"name": "Stub"}},
    }
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(
        json.dumps(
            {
                "model": "stub/stub-model",
                "permission": {"edit": "ask", "bash": "ask"},
                "provider": {"stub": provider},
            }
        )
    )


CLAUDE_ACP: Final = AgentKind(
    type="claude-acp",
    seed=_nothing,
    environment=claude_environment,
    offers=("allow_always", "allow_once", "reject_once"),
    trusts=False,
    silence=_SILENCE,
    cannot=CANNOT,
)
OPENCODE_ACP: Final = AgentKind(
    type="opencode-acp",
    seed=_seed_opencode,
    environment=lambda _: {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
    offers=("allow_once", "allow_always", "reject_once"),
    trusts=False,
    silence=_SILENCE,
    cannot=CANNOT,
)
GEMINI_ACP: Final = AgentKind(
    type="gemini-acp",
    seed=_seed_gemini,
    environment=lambda model: {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": model},
    offers=("allow_always", "allow_once", "reject_once"),
    resumes=False,
    trusts=False,
    silence=_SILENCE,
    cannot=CANNOT,
)
CODEX_ACP: Final = AgentKind(
    type="codex-acp",
    seed=_seed_codex,
    environment=lambda _: {"STUB_KEY": "x"},
    offers=("allow_once", "allow_always", "reject_once"),
    trusts=False,
    silence=_SILENCE,
    cannot=CANNOT,
)

ACP: Final = (CLAUDE_ACP, OPENCODE_ACP, GEMINI_ACP, CODEX_ACP)
