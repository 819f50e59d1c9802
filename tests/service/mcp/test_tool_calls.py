"""Tool calls: the request of each, its result, its errors. Holds docs/mcp.md."""

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from mcp import Client, MCPError
from mcp.types import TextContent, TextResourceContents

from outrider.contract.account import Scope
from outrider.contract.commands import CommandType
from outrider.contract.frames import Failure
from outrider.contract.resources import ActionOption, PendingAction
from outrider.service.accounts.principal import Principal
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import bind
from outrider.service.mcp.tool_calls import ToolCalls
from outrider.service.mcp.tools import TOOLS
from tests.conftest import StartSite
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.mcp import ACCEPT, error_of, mcp_client, message, result_of
from tests.rig.people import V1, calls, dashboard
from tests.rig.samples import RESULTS, TURN, response_to, session
from tests.rig.site import Owner
from tests.rig.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

ASKED = PendingAction(
    id="act_1", message="Run ls?", options=[ActionOption(id="y", label="Yes", kind="allow_once")]
)


async def tool(client: Client, name: str, **arguments: Any) -> Any:
    """Return the result of a tool."""
    return result_of(await client.call_tool(name, arguments))


async def fails(client: Client, name: str, **arguments: Any) -> str:
    """Return the error of a tool."""
    return error_of(await client.call_tool(name, arguments))


async def connected(owner: Owner) -> ScriptedMachine:
    """Return a machine with an agent that asks something; it answers every command."""
    machine = await owner.machine(
        session(id="session_1", status="waiting_approval", pending_action=ASKED)
    )
    return machine.obliges()


SENT: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "get_agent": ({}, "agent_status", {}),
    "read_chat": ({"after": "msg_1", "limit": 5}, "read_chat", {"after": "msg_1", "limit": 5}),
    "wait_agent": ({"after": "msg_1", "timeout_seconds": 1}, "read_turn", {"after": "msg_1"}),
    "get_diff": ({"base": "start"}, "read_changes", {"base": "start"}),
    "send_message": ({"text": "hi"}, "send_chat", {"message": "hi"}),
    "interrupt_agent": ({}, "interrupt", {}),
}
"""By tool of one agent: further arguments, the command of the machine, and its payload."""


async def test_every_tool_of_one_agent_has_a_test() -> None:
    own_tests = {"stop_agent", "respond_approval"}
    of_one_agent = {tool.name for tool in TOOLS if "agent" in tool.arguments}
    assert SENT.keys() | own_tests == of_one_agent


@pytest.mark.parametrize("name", SENT)
async def test_a_tool_of_one_agent(owner: Owner, name: str) -> None:
    machine = await owner.machine(session(id="session_1"))
    arguments, command, payload = SENT[name]
    agent = f"{machine.id}:session:session_1"
    async with mcp_client(owner.site.url, owner.key) as client:
        called = asyncio.create_task(tool(client, name, agent=agent, **arguments))
        taken = await machine.takes(command, target=agent, **payload)
        await machine.answers(taken)
        result = await called
    expected = response_to(taken, machine.id)
    if name == "wait_agent":
        names = ("reason", "cursor", "status", "pendingAction")
        expected = {one: TURN[one] for one in names}
        (said,) = cast("list[dict[str, Any]]", TURN["messages"])
        assert said.items() <= result["messages"][0].items()
    assert {one: result[one] for one in expected} == expected


async def test_the_lists(owner: Owner) -> None:
    machine = await connected(owner)
    async with mcp_client(owner.site.url, owner.key) as client:
        (shown,) = (await tool(client, "list_machines"))["machines"]
        assert (shown["id"], shown["nickname"], shown["connected"]) == (machine.id, "Bench", True)
        installed = [one.type for one in hello().providers if one.installed]
        assert shown["types"] == installed
        (agent,) = (await tool(client, "list_agents"))["agents"]
        assert agent["targetId"] == f"{machine.id}:session:session_1"
        for name in (machine.id, "Bench"):
            assert (await tool(client, "list_agents", machine=name))["agents"] == [agent]
        (approval,) = (await tool(client, "list_approvals"))["approvals"]
        assert approval["action"]["id"] == "act_1"


async def test_launch_and_stop(owner: Owner) -> None:
    machine = await owner.machine()
    async with mcp_client(owner.site.url, owner.key) as client:
        launched = asyncio.create_task(
            tool(client, "launch_agent", machine="Bench", type="claude-code", dir="/srv", model="m")
        )
        asked = {"cliType": "claude-code", "dir": "/srv", "model": "m"}
        await machine.answers(await machine.takes("launch_cli", **asked))
        assert (await launched)["sessionTargetId"]
        agent = f"{machine.id}:session:session_1"
        stopped = asyncio.create_task(tool(client, "stop_agent", agent=agent))
        await machine.answers(await machine.takes("agent_status", target=agent))
        kind = RESULTS["agent_status"]["agentType"]
        await machine.answers(await machine.takes("stop_cli", cliType=kind, target=agent))
        assert (await stopped)["stopped"]


async def test_launch_in_a_worktree_and_resume(owner: Owner) -> None:
    machine = await owner.machine()
    async with mcp_client(owner.site.url, owner.key) as client:
        where = {"machine": "Bench", "type": "demo"}
        launched = asyncio.create_task(
            tool(client, "launch_agent", **where, dir="/srv", worktree="try", base="main")
        )
        worktree = {"branch": "try", "base": "main"}
        await machine.answers(await machine.takes("launch_in_worktree", worktree=worktree))
        assert (await launched)["sessionTargetId"]
        resumed = asyncio.create_task(tool(client, "launch_agent", **where, resume="session_1"))
        await machine.answers(await machine.takes("resume", sessionId="session_1"))
        assert (await resumed)["sessionTargetId"]
        assert "`worktree.branch`" in await fails(client, "launch_agent", **where, base="main")


async def test_a_command_is_run_on_the_machine_of_a_nickname(owner: Owner) -> None:
    machine = await owner.machine()
    async with mcp_client(owner.site.url, owner.key) as client:
        ran = asyncio.create_task(
            client.call_tool("run_command", {"machine": "Bench", "command": "ls", "cwd": "/srv"})
        )
        await machine.answers(await machine.takes("terminal", command="ls", cwd="/srv"))
        answer = await ran
    assert result_of(answer)["output"] == RESULTS["terminal"]["output"]
    (content,) = answer.content  # also as text
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == answer.structured_content


class TestErrors:
    async def test_an_unknown_agent_or_machine(self, owner: Owner) -> None:
        machine = await connected(owner)
        foreign = await (await owner.site.account()).machine()
        async with mcp_client(owner.site.url, owner.key) as client:
            for agent in ("nonsense", f"{foreign.id}:cli:demo", "a/b?c:session:d", ""):
                for name in ("get_agent", "stop_agent", "wait_agent"):
                    assert "list_agents" in await fails(client, name, agent=agent)
            for name in ("nonsense", foreign.id):
                assert "list_machines" in await fails(client, "list_agents", machine=name)
                run = await fails(client, "run_command", machine=name, command="ls")
                assert "list_machines" in run
        assert machine.received_nothing()

    async def test_an_agent_that_has_ended(self, owner: Owner) -> None:
        machine = await owner.machine()
        agent = f"{machine.id}:session:gone"
        async with mcp_client(owner.site.url, owner.key) as client:
            asked = asyncio.create_task(fails(client, "send_message", agent=agent, text="hi"))
            await machine.fails(
                await machine.takes("send_chat"), Failure(status=404, message="No session")
            )
            assert "list_agents" in await asked

    @pytest.mark.parametrize(
        ("name", "arguments", "said"),
        [
            ("get_agent", {}, "`agent`"),
            ("get_agent", {"agent": 5}, "`agent`"),
            ("get_agent", {"agent": "a\nb:cli:c"}, "`agent`"),
            ("wait_agent", {"agent": "a:cli:b", "timeout_seconds": 46}, "`timeout_seconds`"),
            ("wait_agent", {"agent": "a:cli:b", "timeout_seconds": -1}, "`timeout_seconds`"),
            ("read_chat", {"agent": "a:cli:b", "limit": 0}, "`limit`"),
            ("send_message", {"agent": "a:cli:b", "text": "t", "delivery": "x"}, "`delivery`"),
            ("list_agents", {"Machine": "a"}, "`machine`"),
            ("no_such_tool", {}, "list_machines"),
        ],
    )
    async def test_wrong_arguments(
        self, owner: Owner, name: str, arguments: dict[str, Any], said: str
    ) -> None:
        async with mcp_client(owner.site.url, owner.key) as client:
            assert said in await fails(client, name, **arguments)

    async def test_what_the_endpoint_refuses(self, owner: Owner) -> None:
        machines = [await owner.machine(), await owner.machine()]
        offline = (await owner.enrolls()).daemon_id
        async with mcp_client(owner.site.url, owner.key) as client:
            agent = f"{machines[0].id}:cli:a"
            assert "empty" in await fails(client, "send_message", agent=agent, text=" ")
            said = await fails(client, "run_command", machine="Bench", command="ls")
            assert all(machine.id in said for machine in machines)  # of the same nickname
            said = await fails(client, "run_command", machine=offline, command="ls")
            assert "list_machines" in said


TOOLS_OF: dict[Scope, str] = {
    Scope.IDE_READ: "list_machines",
    Scope.AGENT_READ: "list_agents get_agent read_chat wait_agent list_approvals get_diff",
    Scope.IDE_CONTROL: "launch_agent stop_agent",
    Scope.AGENT_CONTROL: "send_message interrupt_agent",
    Scope.TERMINAL_EXEC: "run_command",
    Scope.WEBHOOK_MANAGE: "",
}
"""The tools that a key with one scope lists."""


class TestScopes:
    @pytest.mark.parametrize("scope", Scope)
    async def test_a_scope_lists_its_tools_and_no_others(self, owner: Owner, scope: Scope) -> None:
        key = await owner.site.key(owner.id, [scope])
        async with mcp_client(owner.site.url, key) as client:
            tools = [one.name for one in (await client.list_tools()).tools]
            resources = [str(one.uri) for one in (await client.list_resources()).resources]
            templates = (await client.list_resource_templates()).resource_templates
            assert tools == TOOLS_OF[scope].split()
            assert resources == (["outrider://machines"] if scope == "ide:read" else [])
            assert len(templates) == (2 if scope == "agent:read" else 0)

    async def test_the_read_scope_of_an_endpoint_lists_tools_that_only_read(self) -> None:
        read_scope = Scope.WEBHOOK_MANAGE
        rows = [
            replace(row, read_scope=None if row.mutates else read_scope)
            for row in ENDPOINTS
            if row.socket is None
        ]
        unused = cast("Any", None)
        tools = ToolCalls(bind(rows, None), unused, unused, unused, approvals=True)
        reader = Principal("key", "key_1", "acct_1", frozenset({read_scope}))
        expected = f"{TOOLS_OF[Scope.IDE_READ]} {TOOLS_OF[Scope.AGENT_READ]}"
        assert {one.name for one in tools.listed(reader)} == set(expected.split())

    async def test_a_tool_without_its_scope_is_refused_and_audited(self, user: Owner) -> None:
        machine = await user.machine()
        key = await user.site.key(user.id, ["agent:read"])
        async with mcp_client(user.site.url, key) as client:
            said = await fails(client, "run_command", machine="Bench", command="ls")
        assert "terminal:exec" in said
        assert machine.received_nothing()
        (record,) = [one for one in await audit(user) if one["action"] == "terminal"]
        assert record["outcome"] == 403

    async def test_a_command_is_audited_like_its_request(self, user: Owner) -> None:
        machine = (await user.machine(session(id="session_1"))).obliges()
        agent = f"{machine.id}:session:session_1"
        async with mcp_client(user.site.url, user.key) as client:
            await tool(client, "send_message", agent=agent, text="hi")
        (record,) = [one for one in await audit(user) if one["action"] == "send_chat"]
        assert (record["target"], record["outcome"]) == (agent, 200)

    async def test_a_call_counts_once(self, user: Owner) -> None:
        called = message("tools/call", {"name": "list_approvals"})
        for count in (1, 2):
            assert (await user.api.post("/mcp", json=called, headers=ACCEPT)).status_code == 200
            assert await calls(user) == count


async def audit(owner: Owner) -> list[dict[str, Any]]:
    """Return the account's audit records."""
    answer = await (await dashboard(owner)).get(f"{V1}/audit")
    records: list[dict[str, Any]] = answer.json()["records"]
    return records


class TestApprovals:
    async def test_are_off(self, owner: Owner) -> None:
        machine = await connected(owner)
        async with mcp_client(owner.site.url, owner.key) as client:
            names = [one.name for one in (await client.list_tools()).tools]
            agent = f"{machine.id}:session:session_1"
            said = await fails(client, "respond_approval", agent=agent, action="approve")
        assert "respond_approval" not in names
        assert "OUTRIDER_MCP_APPROVALS" in said

    async def test_may_be_turned_on_but_never_for_the_own_session(
        self, start_site: StartSite
    ) -> None:
        owner = await (await start_site(mcp_approvals=True)).account()
        machine = await owner.machine(session(id="session_1"))
        agent = f"{machine.id}:session:session_1"
        async with mcp_client(owner.site.url, owner.key) as client:
            assert "respond_approval" in [one.name for one in (await client.list_tools()).tools]
            answered = asyncio.create_task(
                tool(client, "respond_approval", agent=agent, action="approve", action_id="act_1")
            )
            sent = {"target": agent, "action": "approve", "actionId": "act_1"}
            await machine.answers(await machine.takes("resolve_action", **sent))
            assert (await answered)["action"] == RESULTS["resolve_action"]["action"]
        state = RESULTS["agent_status"]
        own = {"X-Outrider-Session": f"{machine.id}:session:{state['sessionId']}"}
        async with mcp_client(owner.site.url, owner.key, headers=own) as client:
            refused = asyncio.create_task(
                fails(client, "respond_approval", agent=agent, action="approve")
            )
            await machine.answers(await machine.takes("agent_status"), state)
            assert "your own session" in await refused
        assert machine.received_nothing()


class TestResources:
    async def test_are_the_results_of_the_tools(self, owner: Owner) -> None:
        machine = await connected(owner)
        async with mcp_client(owner.site.url, owner.key) as client:
            for uri, expected in (
                ("outrider://machines", machine.id),
                (f"outrider://agents/{machine.id}:session:session_1", '"updatedAt"'),
                (f"outrider://agents/{machine.id}%3Asession%3Asession_1/chat", '"totalMessages"'),
            ):
                (contents,) = (await client.read_resource(uri)).contents
                assert isinstance(contents, TextResourceContents)
                assert expected in contents.text

    @pytest.mark.parametrize("uri", ["outrider://nothing", "outrider://agents/x"])
    async def test_an_unknown_one(self, owner: Owner, uri: str) -> None:
        async with mcp_client(owner.site.url, owner.key) as client:
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_a_wait_ends_with_its_client(owner: Owner) -> None:
    machine = await owner.machine(session(id="session_1"))
    agent = f"{machine.id}:session:session_1"
    arguments = {"agent": agent, "timeout_seconds": 45}
    asked = asyncio.create_task(
        owner.api.post(
            "/mcp",
            json=message("tools/call", {"name": "wait_agent", "arguments": arguments}),
            headers=ACCEPT,
        )
    )
    unfinished = TURN | {"reason": None, "status": "generating", "messages": []}
    await machine.answers(await machine.takes(CommandType.READ_TURN), unfinished)
    assert "\noutrider_waits 1" in (await owner.site.client().get("/metrics")).text
    asked.cancel()

    async def none_waits() -> bool:
        return "\noutrider_waits 0" in (await owner.site.client().get("/metrics")).text

    await eventually(none_waits)
