"""The list of tools. Holds docs/mcp.md."""

import pytest

from outrider.cloud.api.table import ENDPOINTS
from outrider.cloud.mcp.tools import BY_NAME, TOOLS, input_schema, output_schema

# By hand, as docs/mcp.md has them: arguments (`?` marks an optional one), scope, effect.
CONTRACT = {
    "list_machines": ("", "ide:read", "read"),
    "list_agents": ("machine?", "agent:read", "read"),
    "get_agent": ("agent", "agent:read", "read"),
    "read_chat": ("agent after? limit?", "agent:read", "read"),
    "wait_agent": ("agent after? timeout_seconds?", "agent:read", "read"),
    "list_approvals": ("", "agent:read", "read"),
    "get_diff": ("agent", "agent:read", "read"),
    "launch_agent": ("machine type dir? model?", "ide:control", "write"),
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


def test_bounds_are_in_the_schema() -> None:
    properties = input_schema(BY_NAME["wait_agent"].arguments)["properties"]
    assert properties["timeout_seconds"]["maximum"] == 45
