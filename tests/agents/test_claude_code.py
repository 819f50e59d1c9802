"""The real Claude Code, in a real tmux, against a stub model."""

import asyncio
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from outrider.contract.commands import ResolveAction, SendChat, StopCli
from outrider.contract.errors import ApiError
from tests.agents.machine import Machine, StubModel, kill_server, running_in, until

pytestmark = [pytest.mark.real_agent, pytest.mark.timeout(90)]


async def test_from_launch_to_stop(box: Machine) -> None:
    agent = await box.launch()
    assert agent.status == "idle"
    pid = agent.pid
    environment = psutil.Process(pid).environ()
    assert not [name for name in environment if name.startswith(("OUTRIDER_", "TMUX"))]
    assert environment["HOME"] == box.environment["HOME"]

    message_id = await agent.say("hello there")
    assert ("generating") in [status for _, status in box.statuses]
    await agent.until("idle")
    user, answer = await agent.messages()
    assert (user.id, user.role, user.content) == (message_id, "user", "hello there")
    assert (answer.role, answer.content) == (
        "assistant",
        "Hello from stub. You said: hello there",
    )
    assert [event.event for event in box.events] == [
        "agent:generating_started",
        "agent:generating_completed",
    ]

    await agent.say("please TOOL[touch approved]")
    await agent.until("waiting_approval")
    state = agent.session.state()
    assert state.pending_action is not None
    assert "touch approved" in state.pending_action.message
    assert [option.kind for option in state.pending_action.options] == [
        "allow_once",
        "allow_always",
        "reject_once",
    ]
    with pytest.raises(ApiError) as refused:
        await agent.say("not now")
    assert (refused.value.status, refused.value.code) == (409, "APPROVAL_PENDING")
    results = await asyncio.gather(
        *(agent.session.resolve(ResolveAction(action="approve")) for _ in range(10)),
        return_exceptions=True,
    )
    assert [r.status for r in results if isinstance(r, ApiError)] == [409] * 9
    await agent.until("idle")
    assert (box.project / "approved").exists()

    await agent.say("please TOOL[touch rejected]")
    await agent.until("waiting_approval")
    await agent.resolve("reject")
    await agent.until("idle")
    assert not (box.project / "rejected").exists()
    kinds = [message.kind for message in await agent.messages()]
    assert kinds.count("tool_call") == kinds.count("tool_result") == 2
    assert len(box.named("agent:waiting_approval")) == 2

    stopped = await box.sessions.stop(StopCli(cli_type="claude-code"))
    assert stopped.stopped == [agent.id]
    await until(lambda: not psutil.pid_exists(pid), 2)  # it is dead; its parent reaps it
    assert not running_in(Path(box.environment["HOME"]))


SPECIAL = [
    "/help me with this",
    "!echo is not a command",
    "@nobody says hello",
    "# not a memory",
    "  /indented like this",
    "ends with a backslash \\",
    "look at @appr",
    "quotes ' \" ` $HOME $(id) ; #{pane_id} %1 \\n",
    "several\nlines\n\n  with  spaces\nand ünïcödé 🎉 漢字",
    "\n".join(f"line {number} of 'many'" for number in range(200)),
]


async def test_every_message_arrives_as_it_was_written(box: Machine, model: StubModel) -> None:
    (box.project / "approved.txt").touch()
    agent = await box.launch()
    ids = []
    for text in SPECIAL:
        added = await agent.turn(text)
        assert [(m.role, m.content) for m in added if m.role == "user"] == [("user", text)]
        ids += [m.id for m in added]
    before = await agent.messages()
    assert [message.id for message in before] == ids
    await box.stop()
    await box.start()
    assert await agent.messages() == before


async def test_queued_messages_arrive_in_order(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("first SLOW:0.05")
    assert agent.status == "generating"
    for text in ("second", "third", "fourth"):
        assert (await agent.session.send(SendChat(message=text))).queued
    await until(lambda: len(box.named("agent:generating_completed")) == 4, 20)
    said = [m.content for m in await agent.messages() if m.role == "user"]
    assert said == ["first SLOW:0.05", "second", "third", "fourth"]
    assert agent.status == "idle"


async def test_errors_of_the_model(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("give ERROR400")
    await agent.until("error")
    assert "API Error: 400" in (agent.session.state().error or "")
    assert [m.role for m in await agent.messages()] == ["user", "system"]
    (added, _) = await agent.turn("go on")
    assert added.content == "go on"
    await agent.say("give ERROR500")
    await stays(agent.machine, agent.id, "generating", 3)
    interrupt(box, agent.id)
    await agent.until("idle", "error")
    assert (await agent.turn("and on"))[0].content == "and on"


async def test_a_silent_model_is_still_generating(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("HANG\nwith a second line")
    await stays(box, agent.id, "generating", 5)
    assert not box.named("agent:generating_completed")
    interrupt(box, agent.id)
    await agent.until("idle")
    # the agent has put the prompt back into its input; it must not become part of the next
    assert (await agent.turn("after that"))[0].content == "after that"


async def test_a_daemon_that_is_killed_in_the_middle_of_a_turn(box: Machine) -> None:
    agent = await box.launch()
    message_id = await agent.say("hello SLOW:0.1")
    await box.stop()
    began = time.monotonic()
    await box.start()
    assert agent.status == "generating"
    assert time.monotonic() - began < 2
    await agent.until("idle")
    assert len(box.named("agent:generating_started")) == 1
    assert len(box.named("agent:generating_completed")) == 1
    user, answer = await agent.messages()
    assert user.id == message_id
    assert answer.content.endswith("END-OF-SLOW.")

    await agent.say("please TOOL[touch later]")
    await agent.until("waiting_approval")
    before = agent.session.state().pending_action
    await box.stop()
    await box.start()
    await agent.until("waiting_approval", seconds=2)
    assert agent.session.state().pending_action == before
    assert len(box.named("agent:waiting_approval")) == 1
    await agent.resolve("approve")
    await agent.until("idle")
    assert (box.project / "later").exists()

    await agent.say("hello SLOW:0.02")
    await box.stop()
    await asyncio.sleep(3)  # the turn ends while there is no daemon
    await box.start()
    await agent.until("idle", seconds=2)
    assert len(box.named("agent:generating_completed")) == 3


async def test_the_tmux_server_is_killed(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("hello")
    kill_server(box.socket)
    await agent.until("error", seconds=2)
    assert "tmux server has ended" in (agent.session.state().error or "")
    assert len(await agent.messages()) == 2
    with pytest.raises(ApiError) as refused:
        await agent.say("anybody?")
    assert refused.value.status == 500
    await box.stop()
    await box.start()
    assert agent.status == "error"
    again = await box.launch()
    assert (await again.turn("hello"))[0].content == "hello"
    await box.sessions.stop(StopCli(cli_type="claude-code", session_id=agent.id))


async def test_an_agent_that_dies_says_so(box: Machine) -> None:
    agent = await box.launch()
    psutil.Process(agent.pid).kill()
    await agent.until("error", seconds=3)
    assert "has ended by a signal" in (agent.session.state().error or "")


async def test_the_folder_trust_dialog_is_a_question(box: Machine, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    agent = await box.launch(strange)
    assert agent.status == "waiting_approval"
    pending = agent.session.state().pending_action
    assert pending is not None
    assert [option.kind for option in pending.options] == ["allow_once", "reject_once"]
    await agent.resolve("approve")
    await agent.until("idle")
    assert (await agent.turn("hello"))[0].content == "hello"


async def test_two_identical_questions_are_two_actions(box: Machine) -> None:
    agent = await box.launch()
    seen = []
    for _ in range(2):
        await agent.say("please TOOL[touch same]")
        await agent.until("waiting_approval")
        pending = agent.session.state().pending_action
        assert pending is not None
        seen.append(pending.id)
        await agent.session.resolve(ResolveAction(action="reject", action_id=pending.id))
        await agent.until("idle")
    assert seen[0] != seen[1]
    with pytest.raises(ApiError) as refused:
        await agent.session.resolve(ResolveAction(action="approve", action_id=seen[0]))
    assert refused.value.status == 409


async def test_what_a_person_types_in_the_terminal_is_seen(box: Machine) -> None:
    agent = await box.launch()
    tmux(box, "send-keys", "-t", f"=outrider:={agent.id}", "-l", "typed by hand")
    await asyncio.sleep(0.2)
    tmux(box, "send-keys", "-t", f"=outrider:={agent.id}", "Enter")
    await until(lambda: bool(box.named("agent:generating_completed")), 10)
    assert [m.content for m in await agent.messages() if m.role == "user"] == ["typed by hand"]


def tmux(box: Machine, *command: str) -> None:
    subprocess.run(["tmux", "-L", box.socket, *command], check=True)


def interrupt(box: Machine, session_id: str) -> None:
    tmux(box, "send-keys", "-t", f"=outrider:={session_id}", "Escape")


async def stays(box: Machine, session_id: str, status: str, seconds: float) -> None:
    """Sample the status every 50 ms: it is never another."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        (shown,) = [s.status for s in box.sessions.describe() if s.id == session_id]
        assert shown == status
        await asyncio.sleep(0.05)
