"""The list of tools. Holds docs/mcp.md."""

import re
from pathlib import Path

from outrider.service.mcp.tools import BY_NAME, TOOLS

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
    tools = {}
    for tool in TOOLS:
        schema = tool.input_schema
        given = [
            name if name in schema["required"] else f"{name}?" for name in schema["properties"]
        ]
        effect = "read" if tool.reads_only else "destroy" if tool.destroys else "write"
        tools[tool.name] = (" ".join(given), str(tool.row.scope), effect)
        assert all(argument["description"] for argument in schema["properties"].values())
        assert tool.output_schema["type"] == "object"
    assert tools == CONTRACT
    assert list(tools) == list(CONTRACT)


def test_the_key_of_the_page_may_do_what_the_page_says() -> None:
    """Start agents, give them work and read their answers; and stop them."""
    page = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text()
    (line,) = re.findall(r"^outrider admin key create .*$", page, re.MULTILINE)
    scopes = set(re.findall(r"--scope (\S+)", line))
    needed = ("list_machines", "launch_agent", "send_message", "wait_agent", "read_chat")
    assert scopes >= {CONTRACT[name][1] for name in (*needed, "stop_agent")}


def test_a_result_of_an_older_machine_agent_is_valid() -> None:
    """It lacks the fields that are newer than it."""
    schema = BY_NAME["read_chat"].output_schema
    assert "totalMessages" in schema["required"]
    assert "state" not in schema["required"]


def test_bounds_are_in_the_schema() -> None:
    properties = BY_NAME["wait_agent"].input_schema["properties"]
    assert properties["timeout_seconds"]["maximum"] == 45
