"""An ACP agent over REST, all parts real but the agent, which does what the test says."""

import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.machine.agents.acp.conftest import provider_file
from tests.machine.workspace.repositories import Repo, repository
from tests.rig.processes import environment
from tests.rig.stores import SQLite
from tests.rig.waiting import TIMEOUT, eventually
from tests.service.webhooks.receiver import ReceivedRequest, receiving
from tests.system.up import Up

pytestmark = pytest.mark.asyncio(loop_scope="module")

PICTURE = {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}


@dataclass
class Agent:
    """A launched agent, and who drives it."""

    up: Up
    greeting: str
    machine: str
    session: str
    target: str

    async def says(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Send a message, wait for the end of its turn, and return the chat."""
        sent = await self.up.call("POST", f"/shortcuts/{self.target}/chat", body)
        turn = await self.waits(sent["cursor"])
        assert (turn["reason"], turn["status"]) == ("idle", "idle")
        chat = await self.up.call("GET", f"/shortcuts/{self.target}/chat")
        messages: list[dict[str, Any]] = chat["messages"]
        assert turn["messages"][-1] == messages[-1]
        return messages

    async def waits(self, cursor: str) -> dict[str, Any]:
        """Wait for the end of a turn."""
        path = f"/shortcuts/{self.target}/wait?after={cursor}&timeout=60"
        turn: dict[str, Any] = await self.up.call("GET", path)
        return turn

    async def state(self) -> dict[str, Any]:
        """Return its status."""
        state: dict[str, Any] = await self.up.call("GET", f"/shortcuts/{self.target}/status")
        return state

    async def pending(self) -> Any:
        """Return the question that it asks, None if it asks none."""
        return (await self.state())["pendingAction"]

    async def controls(self) -> dict[str, Any]:
        """Return the values of its controls."""
        return {control["id"]: control["value"] for control in (await self.state())["controls"]}

    async def token(self) -> str:
        """Return a session token of the user that `outrider up` has made."""
        line = next(line for line in self.greeting.splitlines() if line.startswith("Login"))
        body = {"email": line.split()[1], "password": line.split()[-1]}
        return str((await self.up.call("POST", "/auth/login", body))["token"])

    async def audit(self) -> list[dict[str, Any]]:
        """Return the account's audit, as the user that `outrider up` has made sees it."""
        headers = {"Authorization": f"Bearer {await self.token()}"}
        async with httpx.AsyncClient(
            base_url=self.up.url, headers=headers, timeout=TIMEOUT
        ) as page:
            answer = (await page.get("/api/v1/audit")).raise_for_status()
        records: list[dict[str, Any]] = answer.json()["records"]
        return records


@dataclass
class Running:
    """A running `outrider up`, what it has printed, and its machine."""

    up: Up
    greeting: str
    machine: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, sqlite: SQLite
) -> AsyncIterator[Running]:
    """An `outrider up` for all tests; its HOME has a directory `project`."""
    folder = tmp_path_factory.mktemp("up")
    (folder / "home" / "project").mkdir(parents=True)
    provider_file(folder, "--in-order")
    sqlite.migrated(folder / "data")
    env = environment(folder / "data", port="0") | {"HOME": str(folder / "home")}
    async with Up("-m", "outrider", "up", env=env) as up:
        greeting = await up.greeting()
        (machine,) = (await up.call("GET", "/daemons"))["daemons"]
        yield Running(up, greeting, machine["id"])
        up.signal(signal.SIGINT)
        assert await up.ends() == 0


@pytest_asyncio.fixture(loop_scope="module")
async def agent(running: Running) -> AsyncIterator[Agent]:
    """A scripted agent, the only one of the machine."""
    up, machine = running.up, running.machine
    body = {"type": "scripted", "dir": "~/project"}
    launched = await up.call("POST", f"/shortcuts/{machine}/launch", body)
    session, target = launched["sessionId"], launched["sessionTargetId"]
    yield Agent(up, running.greeting, machine, session, target)
    for agent in (await up.call("GET", "/daemons"))["daemons"][0]["acps"]:
        stop = {"type": "scripted", "sessionId": agent["sessionId"]}
        await up.call("POST", f"/shortcuts/{machine}/stop", stop)


async def test_a_file_outside_is_in_the_audit(agent: Agent) -> None:
    chat = await agent.says({"message": "fs write /etc/hosts"})
    assert "is not inside the session's directory" in chat[-1]["content"]

    async def refusals() -> list[dict[str, Any]]:
        return [r for r in await agent.audit() if r["action"] == "agent.fs_write_refused"]

    (record,) = await agent.up.until(refusals)
    assert record["principal"] == agent.machine
    assert record["target"] == f"{agent.session} /etc/hosts"
    assert record["outcome"] == 403


async def test_a_conversation(agent: Agent) -> None:
    pictured = await agent.says({"input": {"parts": [{"type": "text", "text": "look"}, PICTURE]}})
    assert [m["content"] for m in pictured] == [
        "look\n[image: image/png]",
        "You said: look\n[image]",
    ]
    chunks = (await agent.says({"message": "chunks"}))[3:]
    assert [(m["kind"], m["content"]) for m in chunks] == [
        ("thinking", "let me think"),
        ("thinking", "- [x] one"),
        ("text", "abc"),
        ("text", "d"),
    ]
    tool = (await agent.says({"message": "tool"}))[-3:]
    assert [m["kind"] for m in tool] == ["tool_call", "text", "tool_result"]

    assert await agent.controls() == {"model": "small", "web": False, "mode": "ask"}
    payload = {"target": agent.target, "controls": {"mode": "plan", "web": True}}
    command = {"type": "send_chat", "payload": payload}
    done = await agent.up.call("POST", f"/daemons/{agent.machine}/command", command)
    assert done["messageId"] is None
    assert await agent.controls() == {"model": "small", "web": True, "mode": "plan"}

    debug = await agent.up.call("GET", f"/shortcuts/{agent.target}/chat/debug")
    assert "scripted 1" in json.dumps(debug["bundle"])


async def test_a_turn_is_interrupted_and_the_queue_goes_on(agent: Agent) -> None:
    """Holds docs/control.md, over ACP."""
    call, path = agent.up.call, f"/shortcuts/{agent.target}"
    refused = await call("POST", f"{path}/interrupt", None, 409)
    assert refused["code"] == "NOT_GENERATING"

    first = await call("POST", f"{path}/chat", {"message": "sleep"})
    queued = [await call("POST", f"{path}/chat", {"message": text}) for text in ("one", "two")]
    assert [sent["queued"] for sent in queued] == [True, True]
    listed = (await call("GET", f"{path}/queue"))["messages"]
    assert [(m["messageId"], m["text"]) for m in listed] == [
        (queued[0]["messageId"], "one"),
        (queued[1]["messageId"], "two"),
    ]
    taken = await call("DELETE", f"{path}/queue/{queued[0]['messageId']}")
    assert taken == {"success": True, "messageId": queued[0]["messageId"]}
    await call("DELETE", f"{path}/queue/{queued[0]['messageId']}", None, 404)
    busy = await call("POST", f"{path}/chat", {"message": "no", "delivery": "reject"}, 409)
    assert busy["code"] == "AGENT_BUSY"

    assert await call("POST", f"{path}/interrupt") == {"success": True, "status": "idle"}
    assert (await agent.waits(first["cursor"]))["reason"] == "idle"
    assert (await agent.waits(queued[1]["cursor"]))["messages"][-1]["content"] == "You said: two"
    late = await call("DELETE", f"{path}/queue/{queued[1]['messageId']}", None, 409)
    assert late["code"] == "ALREADY_SENT"

    await call("POST", f"{path}/chat", {"message": "permission"})
    await agent.up.until(agent.pending)
    await call("POST", f"{path}/chat", {"message": "no"}, 409)
    sent = await call("POST", f"{path}/chat", {"message": "now", "delivery": "interrupt"})
    assert not sent["queued"]
    turn = await agent.waits(sent["cursor"])
    assert [m["content"] for m in turn["messages"]][-1] == "You said: now"
    await call("GET", f"{path}/screen", None, 400)

    await call("POST", f"/daemons/{agent.machine}/terminal", {"command": "true", "name": "build"})
    terminals = (await call("GET", f"/daemons/{agent.machine}/terminals"))["terminals"]
    assert terminals == [{"name": "build", "busy": False}]


async def test_a_session_is_resumed(agent: Agent) -> None:
    """docs/sessions.md, "Resume a session that has ended"."""
    call, path = agent.up.call, f"/shortcuts/{agent.target}"
    launch = f"/shortcuts/{agent.machine}/launch"
    body = {"type": "scripted", "resume": agent.session}
    before = await agent.says({"message": "hello"})
    running = await call("POST", launch, body, 409)
    assert running["code"] == "NOT_RESUMABLE"
    await call("POST", f"/shortcuts/{agent.machine}/stop", {"type": "scripted"})
    await call("GET", f"{path}/status", None, 404)
    ended = await call("GET", f"{path}/chat")
    assert (ended["state"], ended["resumable"], ended["messages"]) == ("ended", True, before)

    await call("POST", launch, body | {"resume": "session_0"}, 404)
    await call("POST", launch, body | {"type": "claude-code"}, 400)
    await call("POST", launch, body | {"dir": "/"}, 400)
    launched = await call("POST", launch, body)
    assert (launched["sessionId"], launched["sessionTargetId"]) == (agent.session, agent.target)
    assert (await agent.state())["status"] == "idle"
    after = await agent.says({"message": "and on"})
    assert after[: len(before)] == before
    assert after[-1]["content"] == "You said: and on"


async def test_a_session_in_a_worktree(agent: Agent, tmp_path: Path) -> None:
    """docs/sessions.md, "Launch a session in a git worktree of its own"."""
    repo = repository(tmp_path / "repo")
    repo.commit(file="x\n")
    call, launch = agent.up.call, f"/shortcuts/{agent.machine}/launch"
    worktree = {"branch": "topic/one", "base": "main"}
    body = {"type": "scripted", "dir": str(repo.path), "worktree": worktree}
    await call("POST", launch, body | {"dir": str(tmp_path)}, 400)
    await call("POST", launch, body | {"worktree": {"branch": "-x"}}, 400)
    await call("POST", launch, body | {"worktree": {"branch": "main"}}, 409)
    await call("POST", launch, body | {"worktree": worktree | {"base": "none"}}, 400)
    session = (await call("POST", launch, body))["sessionId"]
    machine = await call("GET", f"/daemons/{agent.machine}/status")
    (state,) = [session_ for session_ in machine["sessions"] if session_["id"] == session]
    tree = Repo(tmp_path / "repo.worktrees" / "topic-one")
    assert state["worktree"] == {
        "branch": "topic/one",
        "path": str(tree.path),
        "removed": False,
        "created": True,
    }
    assert state["workspace"]["path"] == str(tree.path)

    tree.write("new", "x\n")
    stop = {"type": "scripted", "sessionId": session, "removeWorktree": True}
    dirty = await call("POST", f"/shortcuts/{agent.machine}/stop", stop, 409)
    assert dirty["code"] == "WORKTREE_DIRTY"
    await call("GET", f"/shortcuts/{agent.machine}:session:{session}/status")
    tree.commit()
    await call("POST", f"/shortcuts/{agent.machine}/stop", stop)
    assert repo.git("worktree", "list").split()[::3] == [str(repo.path)]
    assert repo.git("show", "topic/one:new") == "x"
    await call("POST", f"/shortcuts/{agent.machine}/stop", {"type": "scripted"} | {
        "sessionId": agent.session, "removeWorktree": True
    }, 400)  # fmt: skip

    session = (await call("POST", launch, body))["sessionId"]
    path = f"/shortcuts/{agent.machine}:session:{session}/worktree"
    await call("DELETE", path, None, 409)
    stop = {"type": "scripted", "sessionId": session}
    await call("POST", f"/shortcuts/{agent.machine}/stop", stop)
    assert await call("DELETE", path) == {"success": True, "removed": str(tree.path)}
    assert not tree.path.exists()
    ended = (await call("GET", "/sessions?state=ended"))["sessions"]
    (state,) = [session_ for session_ in ended if session_["id"] == session]
    assert state["worktree"]["removed"]
    await call("DELETE", path, None, 404)


async def test_a_message_of_ten_megabytes(agent: Agent) -> None:
    chat = await agent.says({"message": "big 10000000"})
    assert chat[-1]["content"] == "m" * 10_000_000
    chat = await agent.says({"message": "lines 10000000"})
    assert chat[-1]["content"].endswith("[outrider: the rest is left out here]")
    assert (await agent.says({"message": "hello"}))[-1]["content"] == "You said: hello"


async def test_a_message_reaches_the_session_that_it_names_or_none(agent: Agent) -> None:
    """docs/api.md, Targets."""
    up, machine, older = agent.up, agent.machine, agent.session
    body = {"type": "scripted", "dir": "~/project"}
    newer = (await up.call("POST", f"/shortcuts/{machine}/launch", body))["sessionId"]
    of_type, hello = f"{machine}:acp:scripted", {"message": "hello"}

    async def messages(session: str) -> int:
        chat = await up.call("GET", f"/shortcuts/{machine}:session:{session}/chat")
        return len(chat["messages"])

    async def commands(payload: dict[str, str], status: int = 200) -> dict[str, str]:
        command = {"type": "send_chat", "payload": hello | payload}
        sent: dict[str, str] = await up.call("POST", f"/daemons/{machine}/command", command, status)
        return sent

    before = await messages(older), await messages(newer)
    for target, wrong, status in (
        (of_type, {"targetSessionId": older}, 400),
        (of_type, {"sessionId": "session_none"}, 404),
        (of_type, {"target": f"{machine}:cli:scripted"}, 400),
        (of_type, {"sessionid": newer}, 400),
        (agent.target, {"sessionId": newer}, 400),
        (agent.target, {"target": of_type}, 400),
    ):
        await up.call("POST", f"/shortcuts/{target}/chat", hello | wrong, status)
        if "target" not in wrong:
            await commands({"target": target} | wrong, status)
    assert (await messages(older), await messages(newer)) == before

    assert (await commands({"targetSessionId": older}))["sessionId"] == older
    sent = await up.call("POST", f"/shortcuts/{of_type}/chat", hello | {"sessionId": older})
    assert sent["sessionId"] == older, "which is the one used last by now"
    assert await messages(newer) == before[1]


async def test_events_of_an_acp_agent_reach_a_webhook(agent: Agent) -> None:
    """docs/webhooks.md: from the agent through the machine's journal to a receiver."""
    up, target = agent.up, agent.target
    async with receiving() as receiver:
        headers = {"Authorization": f"Bearer {await agent.token()}"}
        body = {"url": receiver.url, "events": ["*"]}
        async with httpx.AsyncClient(base_url=up.url, headers=headers, timeout=TIMEOUT) as page:
            (await page.post("/api/v1/webhooks", json=body)).raise_for_status()

        def is_of(one: ReceivedRequest) -> bool:  # an event of the test before may still come
            return bool(one.json["sessionId"] == agent.session)

        def taken(name: str) -> list[dict[str, Any]]:
            sent = [delivery for delivery in receiver.requests if delivery.event == name]
            bodies = [delivery.json for delivery in filter(is_of, sent)]
            return sorted(bodies, key=lambda body: str(body["id"]))

        sent = await up.call("POST", f"/shortcuts/{target}/chat", {"message": "permission"})
        await eventually(lambda: taken("approval:opened") != [])
        await up.call("POST", f"/shortcuts/{target}/approve", {"action": "approve"})
        assert (await agent.waits(sent["cursor"]))["reason"] == "idle"
        chat = (await up.call("GET", f"/shortcuts/{target}/chat"))["messages"]
        stop = {"type": "scripted", "sessionId": agent.session}
        await up.call("POST", f"/shortcuts/{agent.machine}/stop", stop)
        await eventually(lambda: taken("session:ended") != [])
        await eventually(lambda: len(taken("chat:message")) >= len(chat))
        await eventually(lambda: taken("approval:resolved") != [])
        assert {delivery.json["targetId"] for delivery in filter(is_of, receiver.requests)} == {
            target
        }
        messages = [body["payload"]["message"] for body in taken("chat:message")]
        assert sorted(messages, key=lambda message: int(message["index"])) == chat
        (opened,), (resolved,) = taken("approval:opened"), taken("approval:resolved")
        assert opened["payload"]["action"] == resolved["payload"]["action"]
        assert resolved["payload"]["resolution"] == "approve"
        assert resolved["payload"]["answeredBy"]["kind"] == "key"
        assert taken("session:updated")
