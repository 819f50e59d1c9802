"""The list of tools. Holds docs/mcp.md."""

import re
from pathlib import Path

import pytest

from outrider.service.endpoints import ENDPOINTS
from outrider.service.mcp.tools import BY_NAME, TOOLS, input_schema, output_schema

# By hand, as docs/mcp.md has them: arguments (`?` marks an optional one), scope, effect.
CONTRACT = {
    "list_machines": ("", "ide:read", "read"),
    "list_agents": ("machine?", "agent:read", "read"),
    "get_agent": ("agent", "agent:read", "read"),
    "read_chat": ("agent after? limit?", "agent:read", "read"),
    "wait_agent": ("agent after? timeout_seconds?", "agent:read", "read"),
    "list_approvals": ("", "agent:read", "read"),
    "get_diff": ("agent base?", "agent:read", "read"),
    "launch_agent": ("machine type dir? model? worktree? base? resume?", "ide:control", "write"),
    "send_message": ("agent text delivery?", "agent:control", "write"),
    "interrupt_agent": ("agent", "agent:control", "write"),
    "stop_agent": ("agent", "ide:control", "destroy"),
    "run_command": ("machine command cwd?", "terminal:exec", "destroy"),
    "respond_approval": ("agent action action_id?", "agent:control", "destroy"),
}


def test_the_tools_are_those_of_the_contract() -> None:
    assert [tool.name for tool in TOOLS] == list(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_a_tool(name: str) -> None:
    arguments, scope, effect = CONTRACT[name]
    tool = BY_NAME[name]
    schema = input_schema(tool.arguments)
    given = [one if one in schema["required"] else f"{one}?" for one in schema["properties"]]
    assert given == arguments.split()
    assert all(one["description"] for one in schema["properties"].values())
    rows = {(row.method, row.path): row for row in ENDPOINTS}
    assert rows[tool.endpoint].scope == scope
    assert tool.effect == effect
    assert output_schema(tool.result)["type"] == "object"
    assert "#/components" not in str(output_schema(tool.result))


def test_the_key_of_the_page_may_do_what_the_page_says() -> None:
    """Start agents, give them work and read their answers; and stop them."""
    page = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text()
    (line,) = re.findall(r"^outrider admin key create .*$", page, re.MULTILINE)
    scopes = set(re.findall(r"--scope (\S+)", line))
    needed = ("list_machines", "launch_agent", "send_message", "wait_agent", "read_chat")
    assert scopes >= {CONTRACT[name][1] for name in (*needed, "stop_agent")}


def test_a_result_of_an_older_machine_agent_is_valid() -> None:
    """It lacks the fields that are newer than it."""
    schema = output_schema(BY_NAME["read_chat"].result)
    assert "totalMessages" in schema["required"]
    assert "state" not in schema["required"]


def test_bounds_are_in_the_schema() -> None:
    properties = input_schema(BY_NAME["wait_agent"].arguments)["properties"]
    assert properties["timeout_seconds"]["maximum"] == 45
