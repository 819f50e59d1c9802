"""MCP end to end: the SDK's client, the real service and machine agent, the demo agent."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters, stdio_client

from tests.rig.mcp import error_of, mcp_client, result_of
from tests.rig.processes import environment, outrider
from tests.rig.stores import SQLite
from tests.rig.waiting import eventually
from tests.system.up import Up

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROOT = Path(__file__).parents[2]


@dataclass
class Desk:
    """`outrider up`, and what a client of it needs."""

    up: Up
    env: dict[str, str]
    folder: Path

    @property
    def stdio_env(self) -> dict[str, str]:
        """The environment of a client of this service."""
        return self.env | {"OUTRIDER_URL": self.up.url, "OUTRIDER_API_KEY": self.up.key}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLite) -> AsyncIterator[Desk]:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "project").mkdir()
    sqlite.migrated(folder / "data")
    env = environment(folder / "data", port="0", mcp_approvals="true")
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        yield Desk(up, env, folder)
        up.signal(signal.SIGINT)
        assert await up.ends() == 0


async def tool(client: Client, name: str, **arguments: Any) -> Any:
    """Return the result of a tool."""
    return result_of(await client.call_tool(name, arguments))


async def listed(client: Client, name: str, agent: str, **arguments: Any) -> Any:
    """Return an agent's entry of a list, once its machine has reported it."""
    found: list[Any] = []

    async def has_it() -> bool:
        (entries,) = (await tool(client, name, **arguments)).values()
        found[:] = [entry for entry in entries if entry["targetId"] == agent]
        return bool(found)

    await eventually(has_it)
    return found[0]


async def turn(client: Client, agent: str, text: str) -> Any:
    """Send a message and return how its turn ends."""
    cursor = (await tool(client, "send_message", agent=agent, text=text))["cursor"]
    while True:
        waited = await tool(client, "wait_agent", agent=agent, after=cursor, timeout_seconds=45)
        if waited["reason"] != "timeout":
            return waited
        cursor = waited["cursor"]


async def every_tool(client: Client, project: Path) -> None:
    """Use every tool once, as an agent would."""
    assert len((await client.list_tools()).tools) == 13
    (machine,) = (await tool(client, "list_machines"))["machines"]
    where = machine["nickname"]
    assert "demo" in machine["types"]
    made = await tool(
        client, "run_command", machine=where, command="git init -q; pwd", cwd=str(project)
    )
    assert (made["output"], made["exitCode"]) == (f"{project}\n", 0)
    launched = await tool(client, "launch_agent", machine=where, type="demo", dir=str(project))
    agent = launched["sessionTargetId"]
    try:
        assert (await listed(client, "list_agents", agent, machine=where))["type"] == "demo"
        assert (await tool(client, "get_agent", agent=agent))["status"] == "idle"
        waited = await turn(client, agent, "hello there")
        assert waited["reason"] == "idle"
        assert waited["messages"][-1]["content"].endswith("You said: hello there")
        chat = await tool(client, "read_chat", agent=agent, limit=1)
        assert chat["messages"] == waited["messages"][-1:]

        asked = await turn(client, agent, "tool")
        assert asked["reason"] == "waiting_approval"
        mine = await listed(client, "list_approvals", agent)
        assert mine["action"] == asked["pendingAction"]
        answer = {"agent": agent, "action": "approve", "action_id": mine["action"]["id"]}
        assert (await tool(client, "respond_approval", **answer))["success"]
        done = await tool(client, "wait_agent", agent=agent, after=asked["cursor"])
        assert done["reason"] == "idle"
        (changed,) = (await tool(client, "get_diff", agent=agent))["files"]
        assert changed["path"] == "demo.txt"

        await tool(client, "send_message", agent=agent, text="stream 600")

        async def streams() -> bool:
            return bool((await tool(client, "get_agent", agent=agent))["status"] == "generating")

        await eventually(streams)
        stopped = await tool(client, "interrupt_agent", agent=agent)
        assert stopped["status"] != "generating"
        contents = (await client.read_resource(f"outrider://agents/{agent}/chat")).contents
        assert "hello there" in str(contents)
    finally:
        assert (await tool(client, "stop_agent", agent=agent))["stopped"]
    assert "list_agents" in error_of(await client.call_tool("get_agent", {"agent": agent}))


def variables_of(process: psutil.Process) -> dict[str, str]:
    """Return a process's environment; nothing if it has ended."""
    try:
        return process.environ()
    except psutil.Error:
        return {}


def folder_of(desk: Desk, name: str) -> Path:
    """Return a new directory for an agent."""
    folder = desk.folder / name
    folder.mkdir()
    return folder


async def test_every_tool_over_http(desk: Desk) -> None:
    async with mcp_client(desk.up.url, desk.up.key) as client:
        await every_tool(client, folder_of(desk, "http"))


async def test_tools_over_stdio(desk: Desk) -> None:
    """The client is one that this agent has started: it cannot answer the agent's approvals."""
    (machine,) = (await desk.up.call("GET", "/daemons"))["daemons"]
    launch = {"type": "demo", "dir": str(folder_of(desk, "own"))}
    own = await desk.up.call("POST", f"/shortcuts/{machine['id']}/launch", launch)
    inherited = [
        variables_of(process).get("AGENT_SESSION_ID")
        for process in psutil.Process(desk.up.process.pid).children(recursive=True)
    ]
    assert own["sessionId"] in inherited
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "outrider", "mcp"],
        env=desk.stdio_env | {"AGENT_SESSION_ID": own["sessionId"]},
    )
    async with Client(stdio_client(program)) as client:
        answer = {"agent": own["sessionTargetId"], "action": "approve"}
        said = error_of(await client.call_tool("respond_approval", answer))
        assert "your own session" in said
        assert "wait_agent" in (client.instructions or "")
        assert len((await client.list_tools()).tools) == 13
        waited = await turn(client, own["sessionTargetId"], "hello there")
        assert waited["messages"][-1]["content"].endswith("You said: hello there")
        chat = f"outrider://agents/{own['sessionTargetId']}/chat"
        assert "hello there" in str((await client.read_resource(chat)).contents)
        assert (await client.list_resource_templates()).resource_templates
        said = error_of(await client.call_tool("read_chat", {"agent": "a:cli:b", "limit": 0}))
        assert "`limit`" in said


async def test_stdio_without_a_key_or_a_service(desk: Desk) -> None:
    for change, named in (
        ({"OUTRIDER_API_KEY": ""}, "OUTRIDER_API_KEY"),
        ({"OUTRIDER_API_KEY": "ork_…"}, "copy the whole key"),
        ({"OUTRIDER_URL": desk.up.url + "/elsewhere"}, "/elsewhere/mcp"),
        ({"OUTRIDER_URL": "http://127.0.0.1:84OO"}, "OUTRIDER_URL"),
    ):
        outcome = await outrider("mcp", env=desk.stdio_env | change)
        assert named in outcome.assert_sentence()


async def test_stdio_with_the_key_of_a_login(desk: Desk) -> None:
    """With nothing on standard input, `outrider mcp` ends once it has reached the service."""
    kept = folder_of(desk, "kept")
    (kept / "client.json").write_text(json.dumps({"server": desk.up.url, "key": desk.up.key}))
    env = desk.env | {"OUTRIDER_CONFIG_DIR": str(kept)}
    outcome = await outrider("mcp", env=env)
    assert (outcome.code, outcome.err) == (0, "")
    wins = await outrider("mcp", env=env | {"OUTRIDER_API_KEY": "ork_wrong"})
    assert "/mcp: " in wins.assert_sentence()


async def test_the_example_in_the_documentation(desk: Desk) -> None:
    text = (ROOT / "docs" / "mcp.md").read_text()
    (code,) = re.findall(r"```python\n(.+?)```", text, re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env=desk.stdio_env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert out.decode().split()[1:] == ["True"]
