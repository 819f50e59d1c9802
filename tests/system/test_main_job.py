"""The main job end to end: drive the real Claude Code on a real machine through the API."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.machine.agents.machine import StubModel, running_in
from tests.rig.waiting import eventually
from tests.system.up import Up

pytestmark = pytest.mark.timeout(240)


async def test_launch_chat_approve_reject_stop(up: Up, home: Path, model: StubModel) -> None:
    (machine,) = (await up.call("GET", "/daemons"))["daemons"]
    project = home / "project"
    launched = await up.call(
        "POST",
        f"/shortcuts/{machine['id']}/launch",
        {"type": "claude-code", "dir": str(project)},
    )
    assert launched["status"] == "idle"
    assert any("claude" in command for command in running_in(home))
    assert launched["kind"] == "cli"
    assert launched["id"] == f"{machine['id']}:cli:claude-code"
    agent = f"/shortcuts/{launched['sessionTargetId']}"

    async def status() -> Any:
        return await up.call("GET", f"{agent}/status")

    async def is_in(wanted: str) -> Any:
        async def reached() -> Any:
            state = await status()
            return state if state["status"] == wanted else None

        return await up.until(reached)

    sent = await up.call("POST", f"{agent}/chat", {"message": "hello SLOW:0.05"})
    assert (sent["success"], sent["queued"]) == (True, False)
    assert (await status())["status"] == "generating" or model.has("last", "hello SLOW")
    await is_in("idle")
    chat = await up.call("GET", f"{agent}/chat")
    user, answer = chat["messages"]
    assert (user["id"], user["role"], user["content"]) == (
        sent["messageId"],
        "user",
        "hello SLOW:0.05",
    )
    words = " ".join(f"word{number}" for number in range(1, 41))
    assert answer["role"] == "assistant"
    assert answer["content"] == f"Hello from stub, slowly. {words} END-OF-SLOW."

    await up.call("POST", f"{agent}/chat", {"message": "please TOOL[touch approved]"})
    waiting = await is_in("waiting_approval")
    assert "touch approved" in waiting["pendingAction"]["message"]
    refused = await up.call("POST", f"{agent}/chat", {"message": "not now"}, status=409)
    assert refused["code"] == "APPROVAL_PENDING"
    answers = await asyncio.gather(
        *(
            up.client.post(
                f"{up.url}/api/v1{agent}/approve",
                json={"action": "approve"},
                headers={"Authorization": f"Bearer {up.key}"},
            )
            for _ in range(2)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    await is_in("idle")
    assert (project / "approved").exists()

    await up.call("POST", f"{agent}/chat", {"message": "please TOOL[touch rejected]"})
    action = (await is_in("waiting_approval"))["pendingAction"]
    rejected = await up.call(
        "POST", f"{agent}/approve", {"action": "reject", "actionId": action["id"]}
    )
    assert rejected["actionId"] == action["id"]
    await is_in("idle")
    assert not (project / "rejected").exists()
    nothing = await up.call("POST", f"{agent}/approve", {"action": "approve"}, status=409)
    assert nothing["code"] == "NO_PENDING_ACTION"

    (shown,) = (await up.call("GET", "/daemons"))["daemons"][0]["clis"]
    assert (shown["sessionId"], shown["workspace"]) == (
        launched["sessionId"],
        {"path": str(project), "name": "project"},
    )
    stopped = await up.call("POST", f"/shortcuts/{machine['id']}/stop", {"type": "claude-code"})
    assert stopped == {"success": True, "stopped": [launched["sessionId"]]}
    await eventually(lambda: all("outrider up" in command for command in running_in(home)))
    assert (await up.call("GET", "/daemons"))["daemons"][0]["clis"] == []
    await up.call("GET", f"{agent}/status", status=404)


async def test_the_raw_commands_and_a_terminal(up: Up, home: Path) -> None:
    machine = (await up.call("GET", "/daemons"))["daemons"][0]["id"]
    command, project = f"/daemons/{machine}/command", str(home / "project")
    await up.call("POST", command, {"type": "read_chat"}, status=404)
    unknown = await up.call(
        "POST",
        command,
        {"type": "launch_cli", "payload": {"cliType": "claude-code", "dir": "/nowhere"}},
        status=400,
    )
    assert "/nowhere" in unknown["error"]

    launch = {"type": "launch_cli", "payload": {"cliType": "claude-code", "dir": project}}
    launched = await up.call("POST", command, launch)
    await up.call("POST", command, {"type": "send_chat", "payload": {"message": "hi"}})

    async def answered() -> Any:
        chat = await up.call("POST", command, {"type": "read_chat"})
        return chat if chat["totalMessages"] == 2 and chat["status"] == "idle" else None

    chat = await up.until(answered)
    assert chat["success"] is True
    assert chat["messages"][1]["content"] == "Hello from stub. You said: hi"
    await up.call("POST", command, {"type": "screenshot"}, status=400)
    stopped = await up.call(
        "POST", command, {"type": "stop_cli", "payload": {"cliType": "claude-code"}}
    )
    assert stopped["stopped"] == [launched["sessionId"]]

    ran = await up.call(
        "POST", f"/daemons/{machine}/terminal", {"command": "pwd; exit 3", "cwd": project}
    )
    assert (ran["output"], ran["exitCode"], ran["truncated"]) == (f"{project}\n", 3, False)


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.faults)]
)
async def test_an_agent_outlives_outrider(
    env: dict[str, str], home: Path, how: signal.Signals
) -> None:
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        machine = (await up.call("GET", "/daemons"))["daemons"][0]["id"]
        launched = await up.call(
            "POST",
            f"/shortcuts/{machine}/launch",
            {"type": "claude-code", "dir": str(home / "project")},
        )
        agent = f"/shortcuts/{launched['sessionTargetId']}"
        sent = await up.call("POST", f"{agent}/chat", {"message": "hello SLOW:0.05"})
        up.signal(how)
        await up.ends()
    assert any("claude" in command for command in running_in(home))

    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()

        async def idle() -> Any:
            chat = await up.call("GET", f"{agent}/chat")
            return chat if chat["status"] == "idle" else None

        chat = await up.until(idle)
        assert [message["role"] for message in chat["messages"]] == ["user", "assistant"]
        assert chat["messages"][0]["id"] == sent["messageId"]
        assert chat["messages"][1]["content"].endswith("END-OF-SLOW.")
        await up.call("POST", f"/shortcuts/{machine}/stop", {"type": "claude-code"})
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
    assert running_in(home) == []
