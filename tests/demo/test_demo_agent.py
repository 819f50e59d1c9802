"""What the demo agent does for each message. Holds docs/demo.md."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.contract.commands import ResolveAction, SendChat
from outrider.contract.resources import Message
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import Agent, Machine, machine, until
from tests.rig.processes import PROCESS_TIMEOUT

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEMO = AgentKind("demo", seed=lambda *_: None, environment=lambda _: {})


def answered(messages: list[Message]) -> list[tuple[str, str]]:
    """Return the kinds and texts of an answer, without the message of the user."""
    assert messages[0].role == "user"
    return [(message.kind, message.content) for message in messages[1:]]


def read(file: Path) -> str | None:
    """Return the content of a file; None if there is none."""
    return file.read_text() if file.exists() else None


def write(file: Path, content: str) -> None:
    """Write a file."""
    file.write_text(content)


def read_bytes(file: Path) -> bytes:
    """Return the bytes of a file."""
    return file.read_bytes()


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file that need not be text."""
    file.write_bytes(content)


async def answers(agent: Agent, message: str) -> str:
    """Send a message and return the text of the whole answer."""
    ((kind, text),) = answered(await agent.turn(message))
    assert kind == "text"
    return text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Machine]:
    folder = tmp_path_factory.mktemp("demo")
    (folder / "home").mkdir()
    async with machine(folder, DEMO, Path(os.environ["PATH"].split(":")[0]), "") as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(box: Machine) -> Agent:
    """An agent for tests that leave it idle."""
    return await box.launch()


@pytest.fixture
def file(box: Machine) -> Path:
    """The file that it edits, which is not there at first."""
    path = box.project / "demo.txt"
    path.unlink(missing_ok=True)
    return path


async def test_it_is_always_installed_and_says_that_it_is_a_demo(box: Machine) -> None:
    (shown,) = (spec for spec in box.sessions.providers() if spec.type == "demo")
    assert (shown.category, shown.display_name) == ("acp", "Demo agent")
    assert shown.installed
    assert shown.demo
    assert [spec.type for spec in box.sessions.providers() if spec.demo] == ["demo"]


@pytest.mark.parametrize("message", ["Hello there", "Help me", "stream", "stream 5 seconds"])
async def test_anything_else_is_answered_with_markdown(shared: Agent, message: str) -> None:
    lines = (await answers(shared, message)).splitlines()
    assert lines[0].startswith("## ")
    assert any(line.startswith("- ") for line in lines)
    assert any(line.startswith("```") for line in lines)
    assert lines[-1] == f"You said: {message}"


async def test_help_lists_every_command(shared: Agent) -> None:
    text = await answers(shared, "help")
    for name in ("stream", "silent", "tool", "read", "edit", "think", "plan", "messages",
                 "remember", "fail", "crash"):  # fmt: skip
        assert f"`{name}" in text


async def test_streaming_and_silence_end_after_their_time(shared: Agent) -> None:
    assert (await answers(shared, "stream 1")).endswith("Done streaming.")
    assert await answers(shared, "silent 1") == "I said nothing for 1 s."


@pytest.mark.parametrize("message", ["stream 0", "stream 601", "silent x", "messages 10001"])
async def test_a_number_that_it_does_not_take_is_refused(shared: Agent, message: str) -> None:
    name = message.split(maxsplit=1)[0]
    assert (await answers(shared, message)).startswith(f"`{name}` takes a number from 1 to ")


@pytest.mark.parametrize("message", ["stream 600", "silent 600"])
async def test_an_interrupted_turn_is_over(shared: Agent, message: str) -> None:
    await shared.say(message)
    await shared.until("generating")
    assert await shared.interrupt() == "idle"


async def test_an_approval_that_is_interrupted_writes_nothing(shared: Agent, file: Path) -> None:
    await shared.say("tool")
    await shared.until("waiting_approval")
    assert await shared.interrupt() == "idle"
    assert read(file) is None


@pytest.mark.parametrize(
    ("action", "answer", "content"),
    [("approve", "Approved.", "Line 1 of the demo agent\n"), ("reject", "Rejected.", None)],
)
async def test_a_tool_call_writes_only_once_it_is_approved(
    shared: Agent, file: Path, action: str, answer: str, content: str | None
) -> None:
    await shared.say("tool")
    await shared.until("waiting_approval")
    asked = shared.session.describe().pending_action
    assert asked is not None
    assert "demo.txt" in asked.message
    assert [option.kind for option in asked.options] == [
        "allow_once",
        "allow_always",
        "reject_once",
    ]
    assert read(file) is None
    await shared.resolve(action)  # type: ignore[arg-type]
    await shared.until("idle")
    assert (await shared.messages())[-1].content == answer
    assert read(file) == content


# A test that launches an agent of its own stops it: those that restart the machine start all anew.


async def test_a_tool_that_is_always_allowed_asks_no_more(box: Machine, file: Path) -> None:
    agent = await box.launch()
    await agent.say("tool")
    await agent.until("waiting_approval")
    asked = agent.session.describe().pending_action
    assert asked is not None
    await agent.session.resolve(ResolveAction(action="approve", option_id=asked.options[1].id))
    await agent.until("idle")
    await agent.turn("tool")
    assert read(file) == "Line 1 of the demo agent\nLine 2 of the demo agent\n"
    await agent.stop()


async def test_read_shows_the_file(shared: Agent, file: Path) -> None:
    call, result, text = answered(await shared.turn("read"))
    assert (call[0], result[0]) == ("tool_call", "tool_result")
    assert "no demo.txt" in result[1]
    write(file, "what it holds\n")
    _, result, text = answered(await shared.turn("read"))
    assert result == ("tool_result", "what it holds\n")
    assert text == ("text", "I have read demo.txt.")


async def test_edit_shows_its_diff_before_it_writes(shared: Agent, file: Path) -> None:
    write(file, "first\nsecond\n")
    await shared.say("edit")
    await shared.until("waiting_approval")
    asked = shared.session.describe().pending_action
    assert asked is not None
    assert "first (edited)" in asked.message
    assert asked.diff is not None
    assert [diff.path for diff in asked.diff] == [str(file)]
    assert "-first\n+first (edited)\n" in asked.diff[0].patch
    await shared.resolve("approve")
    await shared.until("idle")
    assert read(file) == "first (edited)\nsecond\n"


async def test_thoughts_and_plans_are_shown(shared: Agent) -> None:
    assert [kind for kind, _ in answered(await shared.turn("think"))] == ["thinking", "text"]
    plan, done = answered(await shared.turn("plan"))
    assert plan[1].splitlines() == [
        "- [x] Look at the task",
        "- [x] Do the work",
        "- [x] Check the result",
    ]
    assert done == ("text", "The plan is carried out.")


async def test_many_messages_are_messages_of_their_own(shared: Agent) -> None:
    texts = [text for _, text in answered(await shared.turn("messages 50"))]
    assert texts == [f"Message {number} of 50" for number in range(1, 51)]


async def test_a_failure_ends_the_turn_only(shared: Agent) -> None:
    await shared.say("fail")
    await shared.until("error")
    assert "as it was told to" in (shared.session.describe().error or "")
    assert (await answers(shared, "Still there?")).endswith("You said: Still there?")


async def test_a_crash_ends_the_agent_and_it_can_be_resumed(box: Machine) -> None:
    agent = await box.launch()
    await agent.session.send(SendChat(message="crash"))
    await until(lambda: agent.ended is not None)
    assert agent.ended is not None
    assert "with code 1" in agent.error
    assert agent.ended.resumable
    await agent.resume()
    assert await answers(agent, "remember") == "crash"
    await agent.stop()


@pytest.mark.parametrize("message", ["tool", "read", "edit"])
async def test_a_file_that_is_no_text_stays_as_it_is(
    shared: Agent, file: Path, message: str
) -> None:
    write_bytes(file, b"\xff\xfe")
    await shared.say(message)
    await shared.until("error")
    assert "is not a UTF-8 text file" in (shared.session.describe().error or "")
    assert read_bytes(file) == b"\xff\xfe"


async def test_mode_and_model_are_chosen_with_a_message(box: Machine, file: Path) -> None:
    agent = await box.launch()
    controls = {control.id: control for control in agent.session.state().controls}
    assert {control.label for control in controls.values()} >= {"Model", "Mode"}
    mode = next(control for control in controls.values() if control.label == "Mode")
    model = next(control for control in controls.values() if control.label == "Model")
    await agent.session.send(
        SendChat(message="tool", controls={mode.id: mode.options[1], model.id: model.options[1]})
    )
    await agent.until("idle")
    assert read(file) == "Line 1 of the demo agent\n"
    assert agent.session.describe().model == "Demo 2"
    await agent.stop()


async def test_it_remembers_after_a_restart(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("Remember the blue house")
    before = await agent.messages()
    await box.stop()
    await box.start()
    await agent.until("idle")
    assert await agent.messages() == before
    assert await answers(agent, "remember") == "Remember the blue house"
    assert agent.session.describe().title == "Remember the blue house"
    await agent.stop()


async def test_it_remembers_after_its_end_and_a_restart_of_the_machine(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("Remember the green house")
    before = await agent.messages()
    await agent.stop()
    await box.stop()
    box.kill()
    await box.start()
    assert agent.ended is not None
    assert agent.ended.resumable
    assert await agent.messages() == before
    await agent.resume()
    assert await agent.messages() == before
    assert await answers(agent, "remember") == "Remember the green house"
    await agent.stop()


async def test_a_module_of_the_project_is_not_run(box: Machine) -> None:
    module = box.project / "outrider.py"
    write(module, "raise SystemExit(7)")
    agent = await box.launch()
    assert agent.status == "idle"
    await agent.stop()
    module.unlink()


@pytest.mark.parametrize("message", ["stream 600", "silent 600", "tool"])
async def test_it_ends_when_its_client_is_killed_during_a_turn(
    message: str, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "outrider.demo",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None

    def request(method: str, params: dict[str, object]) -> None:
        body = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        process.stdin.write(json.dumps(body).encode() + b"\n")  # type: ignore[union-attr]

    try:
        async with asyncio.timeout(PROCESS_TIMEOUT):
            request("session/new", {"cwd": str(tmp_path), "mcpServers": []})
            session = json.loads(await process.stdout.readline())["result"]["sessionId"]
            prompt = [{"type": "text", "text": message}]
            request("session/prompt", {"sessionId": session, "prompt": prompt})
            assert b"session/update" in await process.stdout.readline()  # the turn has begun
            for _ in range(2):  # it stores the message before it answers
                storing = json.loads(await process.stdout.readline())
                assert storing["method"] == "fs/write_text_file"
                stored = {"jsonrpc": "2.0", "id": storing["id"], "result": {}}
                process.stdin.write(json.dumps(stored).encode() + b"\n")
            process.stdin.close()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
