"""Every Python example of docs/python.md and of the client's docstrings runs."""

import asyncio
import re
from pathlib import Path

import pytest

import outrider.sdk
from outrider.sdk import AsyncAgent
from tests.rig.patience import PATIENCE
from tests.sdk.conftest import Workplace

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    *BLOCK.findall((ROOT / "docs" / "python.md").read_text()),
    *BLOCK.findall((outrider.sdk.__doc__ or "").replace("claude-code", "demo")),
]


async def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 7


@pytest.mark.parametrize("example", EXAMPLES)
async def test_it_runs(
    example: str,
    workplace: Workplace,
    agent: AsyncAgent,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OUTRIDER_URL", workplace.site.url)
    monkeypatch.setenv("OUTRIDER_API_KEY", workplace.key)
    program = compile(example.replace("/srv/app", str(workplace.project)), "example", "exec")
    running = asyncio.create_task(asyncio.to_thread(exec, program, {}))
    if "client.events" in example:  # an example that waits for a turn to fail
        while not running.done():
            await agent.ask("fail", timeout=PATIENCE)
    async with asyncio.timeout(PATIENCE):
        await running
    if "for approval in" not in example:
        assert capsys.readouterr().out
