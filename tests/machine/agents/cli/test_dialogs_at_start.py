"""What an agent asks for before it works: a question, or an error that says what to do. No hang."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outrider.contract.errors import ApiError
from tests.machine.agents.conftest import Install
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds.aider import AIDER
from tests.machine.agents.kinds.claude_code import CLAUDE_CODE
from tests.machine.agents.kinds.codex import CODEX
from tests.machine.agents.kinds.codex import seed as seed_codex
from tests.machine.agents.kinds.gemini_cli import GEMINI_CLI
from tests.machine.agents.kinds.opencode import OPENCODE
from tests.machine.agents.machine import Machine, StubModel, machine, running_in
from tests.machine.agents.scenario import param

pytestmark = pytest.mark.timeout(300)

OFFLINE = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
}
"""Nobody listens there: an agent without a configuration would ask its maker's service."""


def nothing(home: Path, project: Path, model: str) -> None:
    """Give a HOME nothing: the agent has never run there."""
    home.mkdir()


def an_update(home: Path, project: Path, model: str) -> None:
    """Have Codex know of a newer version."""
    seed_codex(home, project, model)
    config = home / ".codex" / "config.toml"
    config.write_text(config.read_text().replace("check_for_update_on_startup = false", ""))
    known = {
        "latest_version": "0.999.0",
        "last_checked_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "dismissed_version": None,
    }
    (home / ".codex" / "version.json").write_text(json.dumps(known))


@pytest.fixture
def seed() -> Callable[[Path, Path, str], None]:
    """What the HOME is given."""
    return nothing


@pytest.fixture
async def box(
    tmp_path: Path,
    kind: AgentKind,
    install: Install,
    model: StubModel,
    seed: Callable[[Path, Path, str], None],
) -> AsyncIterator[Machine]:
    """A machine on which the agent has never run."""
    own = {**OFFLINE, **({"STUB_KEY": "stub"} if seed is an_update else {})}
    fresh = replace(kind, seed=seed, environment=lambda _: own)
    async with machine(tmp_path, fresh, install(kind), model.url) as running:
        yield running


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        pytest.param(kind, advice, id=kind.type, marks=param(kind).marks)
        for kind, advice in ((CLAUDE_CODE, "run `claude` once"), (CODEX, "run `codex login` once"))
    ],
)
async def test_a_login_that_is_missing_is_an_error_that_says_what_to_do(
    box: Machine, advice: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await box.launch()
    assert refused.value.status == 500
    assert advice in refused.value.message
    assert not running_in(Path(box.environment["HOME"]))


@pytest.mark.parametrize(
    ("kind", "asks"),
    [
        pytest.param(kind, asks, id=kind.type, marks=param(kind).marks)
        for kind, asks in ((GEMINI_CLI, "Do you trust the files"), (AIDER, "No git repo found"))
    ],
)
async def test_a_first_question_has_its_text_and_its_options(box: Machine, asks: str) -> None:
    agent = await box.launch()
    assert agent.status == "waiting_approval"
    pending = agent.session.state().pending_action
    assert pending is not None
    assert pending.message.startswith(asks)
    kinds = {option.kind for option in pending.options}
    assert {"allow_once", "reject_once"} <= kinds


@pytest.mark.parametrize("kind", [param(OPENCODE)])
async def test_opencode_asks_nothing(box: Machine) -> None:
    assert (await box.launch()).status == "idle"


@pytest.mark.parametrize(
    ("kind", "seed"),
    [pytest.param(*v, id="codex", marks=param(CODEX).marks) for v in [(CODEX, an_update)]],
)
async def test_an_update_that_is_offered_can_be_skipped(box: Machine) -> None:
    agent = await box.launch()
    assert agent.status == "waiting_approval"
    pending = agent.session.state().pending_action
    assert pending is not None
    assert pending.message.startswith("Update available")
    await agent.resolve("reject")
    await agent.until("idle")
    assert (await agent.turn("hello"))[0].content == "hello"
