"""Real agents as clients of `/mcp`: Claude Code, with a stub model that calls tools."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.machine.agents.kinds.claude_code import environment as claude_environment
from tests.machine.agents.kinds.claude_code import seed_claude
from tests.machine.agents.machine import StubModel, agent_environment
from tests.recipes.recipe import blocks
from tests.rig.processes import environment
from tests.rig.stores import SQLite
from tests.system.up import Up

pytestmark = [
    pytest.mark.real_agent,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("claude-code"),
]


async def runs(script: str, env: dict[str, str], cwd: Path) -> str:
    """Run commands of a page of the documentation and return what they print."""
    process = await asyncio.create_subprocess_exec(
        "sh",
        "-euc",
        script,
        env=env,
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(120):
            out, _ = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_claude_code_gives_another_agent_work(
    tmp_path: Path, agents_bin: Path, model: StubModel, sqlite: SQLite
) -> None:
    sqlite.migrated(tmp_path / "data")
    home, project = tmp_path / "home", tmp_path / "home" / "project"
    project.mkdir(parents=True)
    seed_claude(home, project)
    own = {**agent_environment(home, agents_bin, claude_environment(model.url))}
    del own["OUTRIDER_SECRET_KEY"]
    up_env = environment(tmp_path / "data", port="0")
    async with Up("-m", "outrider", "up", env=up_env) as up:
        await up.greeting()
        (machine,) = (await up.call("GET", "/daemons"))["daemons"]
        launched = await up.call(
            "POST", f"/shortcuts/{machine['id']}/launch", {"type": "demo", "dir": str(project)}
        )
        agent = launched["sessionTargetId"]
        own |= {"OUTRIDER_URL": up.url, "OUTRIDER_API_KEY": up.key}
        add, prompt_line, add_stdio, remove = blocks("claude-code.md", "sh")
        await runs(add, env=own, cwd=project)

        async def asks(call: str) -> str:
            """Return what Claude Code prints; it connects to servers beside its first turn, and
            without them the model has no tool to call.
            """
            given = own | {"PROMPT": f"please CALL[{call}]"}
            for _ in range(5):
                said = await runs(prompt_line, env=given, cwd=project)
                if not said.startswith("Hello from stub"):
                    break
            return said

        assert machine["id"] in await asks("list_machines")
        arguments = json.dumps({"agent": agent, "text": "hello from Claude"})
        assert "cursor" in await asks(f"send_message {arguments}")
        waited = await up.call("GET", f"/shortcuts/{agent}/wait?timeout=60")
        assert waited["messages"][-1]["content"].endswith("You said: hello from Claude")
        await runs(add_stdio, env=own, cwd=project)
        await runs(remove, env=own, cwd=project)
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
