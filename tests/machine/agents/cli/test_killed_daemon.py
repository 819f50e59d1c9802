"""`kill -9` of the real daemon: alone in the middle of a turn, and with everything else."""

import contextlib
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import pytest

from outrider.machine.settings import DaemonSettings
from tests.machine.agents.conftest import Install
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.kinds import KINDS
from tests.machine.agents.machine import (
    TIMEOUT,
    StubModel,
    agent_environment,
    kill_server,
    running_in,
)
from tests.machine.agents.scenario import param
from tests.rig.processes import environment
from tests.rig.waiting import eventually
from tests.system.up import Up

pytestmark = pytest.mark.timeout(400)

NEEDED = "test_a_daemon_that_is_killed_in_the_middle_of_a_turn"
COMMAND_TIMEOUT = 150
"""Seconds for a launch: the service's default is enough where not all the agents are tested."""
IN_TERMINALS = [kind for kind in KINDS if NEEDED not in kind.cannot]


class PatientUp(Up):
    """`outrider up` on a machine that real agents keep busy."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.client.timeout = httpx.Timeout(COMMAND_TIMEOUT + 10)
        return self

    async def next_line(self, within: float = TIMEOUT) -> str:
        """Return the program's next line."""
        return await super().next_line(within)


@pytest.fixture
def env(
    tmp_path: Path, kind: AgentKind, install: Install, model: StubModel
) -> Iterator[dict[str, str]]:
    """An environment for `outrider up` on a machine with this agent."""
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    kind.seed(home, project, model.url)
    env = environment(tmp_path / "data", port="0", command_timeout=f"{COMMAND_TIMEOUT}")
    env |= agent_environment(home, install(kind), kind.environment(model.url))
    env["OUTRIDER_SECRET_KEY"] = "long enough, and it must not reach the agent"
    socket = DaemonSettings(Path(env["OUTRIDER_CONFIG_DIR"])).tmux_socket
    try:
        yield env
    finally:
        kill_server(socket)


@pytest.mark.parametrize("kind", [param(kind) for kind in IN_TERMINALS])
async def test_a_turn_goes_on_and_is_told_once(
    kind: AgentKind, env: dict[str, str], tmp_path: Path, model: StubModel
) -> None:
    async with PatientUp("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        machine = (await up.call("GET", "/daemons"))["daemons"][0]["id"]
        launch = {"type": kind.type, "dir": str(tmp_path / "project")}
        launched = await up.call("POST", f"/shortcuts/{machine}/launch", launch)
        agent = f"/shortcuts/{launched['sessionTargetId']}"
        text = f"hello {uuid.uuid4().hex} SLOW:0.3"
        sent = await up.call("POST", f"{agent}/chat", {"message": text})
        assert (await up.call("GET", f"{agent}/status"))["status"] == "generating"
        up.signal(signal.SIGKILL)
        await up.ends()
    assert running_in(tmp_path / "home")

    async with PatientUp("-m", "outrider", "up", env=env) as up:
        await up.greeting()

        async def status() -> Any:
            answer = await up.client.get(
                f"{up.url}/api/v1{agent}/status", headers={"Authorization": f"Bearer {up.key}"}
            )
            return answer.json().get("status")

        first = await up.until(status, within=TIMEOUT)
        assert first == "generating" or model.has("last", text)  # the machine may be that slow

        async def over() -> bool:
            return bool(await status() != "generating")

        await eventually(over, within=TIMEOUT)
        chat = await up.call("GET", f"{agent}/chat")
        assert chat["status"] == "idle"
        assert [message["role"] for message in chat["messages"]] == ["user", "assistant"]
        assert chat["messages"][0]["id"] == sent["messageId"]
        assert chat["messages"][1]["content"] == model.answer("hello SLOW:0")
        bundle = (await up.call("GET", f"{agent}/chat/debug"))["bundle"]
        assert [event["event"] for event in bundle["events"]] == ["agent:generating_completed"]
        await up.call("POST", f"/shortcuts/{machine}/stop", {"type": kind.type})
        up.signal(signal.SIGINT)
        assert await up.ends(within=TIMEOUT) == 0
    await eventually(lambda: not running_in(tmp_path / "home"), within=TIMEOUT)


@pytest.mark.parametrize("kind", [param(kind) for kind in KINDS])
async def test_a_session_is_resumed_after_a_restart_of_the_machine(
    kind: AgentKind, env: dict[str, str], tmp_path: Path, model: StubModel
) -> None:
    """The daemon, the tmux server and the agents are killed together."""
    async with PatientUp("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        machine = (await up.call("GET", "/daemons"))["daemons"][0]["id"]
        launch, stop = f"/shortcuts/{machine}/launch", f"/shortcuts/{machine}/stop"
        body = {"type": kind.type, "dir": str(tmp_path / "project")}
        launched = await up.call("POST", launch, body)
        session, agent = launched["sessionId"], f"/shortcuts/{launched['sessionTargetId']}"
        await says(up, agent, "the word is NOTE-plum")
        before = (await up.call("GET", f"{agent}/chat"))["messages"]
        assert len(before) == 2
        text = f"count {uuid.uuid4().hex} SLOW:1"
        sent = await up.call("POST", f"{agent}/chat", {"message": text})
        await eventually(lambda: model.has("first", text), within=TIMEOUT)
        up.signal(signal.SIGKILL)
        kill_all(tmp_path / "home", env)
        await up.ends()
    await eventually(lambda: not running_in(tmp_path / "home"), within=TIMEOUT)

    async with PatientUp("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        if kind in IN_TERMINALS or not kind.resumes:

            async def ended() -> Any:
                return (await up.call("GET", "/sessions?state=ended"))["sessions"]

            (state,) = await up.until(ended, within=TIMEOUT)
            assert (state["id"], state["endReason"]) == (session, "machine_restarted")
            assert state["resumable"] == kind.resumes
        else:  # the daemon has opened it again by itself, over the protocol
            await up.call("POST", stop, {"type": kind.type})
        chat = await up.call("GET", f"{agent}/chat")
        assert chat["state"] == "ended"
        ended_chat = chat["messages"]
        assert ended_chat[:2] == before
        assert ended_chat[2]["id"] == sent["messageId"]
        resume = {"type": kind.type, "resume": session}
        if not kind.resumes:
            refusal = await up.call("POST", launch, resume, 409)
            assert refusal["code"] == "NOT_RESUMABLE"
        else:
            again = await up.call("POST", launch, resume)
            assert again["sessionId"] == session
            assert "NOTE-plum" in await says(up, agent, "RECALL it")
            after = (await up.call("GET", f"{agent}/chat"))["messages"]
            assert after[: len(ended_chat)] == ended_chat
            await up.call("POST", stop, {"type": kind.type})
        up.signal(signal.SIGINT)
        assert await up.ends(within=TIMEOUT) == 0
    await eventually(lambda: not running_in(tmp_path / "home"), within=TIMEOUT)


async def says(up: Up, agent: str, text: str) -> str:
    """Send a message; return the last message of its turn."""
    sent = await up.call("POST", f"{agent}/chat", {"message": text})
    path = f"{agent}/wait?after={sent['cursor']}&timeout=60"

    async def turn() -> Any:
        found = await up.call("GET", path)
        return found if found["reason"] == "idle" else None

    content: str = (await up.until(turn, within=TIMEOUT))["messages"][-1]["content"]
    return content


def kill_all(home: Path, env: dict[str, str]) -> None:
    """Kill the tmux server and every process with this HOME."""
    kill_server(DaemonSettings(Path(env["OUTRIDER_CONFIG_DIR"])).tmux_socket)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME") == str(home):
                process.kill()
