"""What an agent says becomes a chat; what it asks, a pending action; what it offers, controls."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.commands import (
    ChatInput,
    ImagePart,
    LaunchCli,
    ResolveAction,
    SendChat,
    StopCli,
    TextPart,
)
from outrider.contract.errors import ApiError
from outrider.contract.resources import FileDiff, FileLocation, Message, Tool
from outrider.machine.sessions.chat_log import ChatLog, chat_file
from tests.machine.agents.acp.conftest import provider_file
from tests.machine.agents.machine import (
    Agent,
    Machine,
    end_many,
    objects_of_agents,
    running_in,
    until,
)
from tests.machine.agents.scenario import said
from tests.machine.sessions.test_deltas import Sink


def told(messages: list[Message]) -> list[tuple[str, str, str]]:
    return [(message.role, message.kind, message.content) for message in messages]


async def test_from_launch_to_stop(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert agent.status == "idle"
    message_id = await agent.say("hello there")
    await agent.until("idle")
    user, answer = await agent.messages()
    assert (user.id, user.role, user.content) == (message_id, "user", "hello there")
    assert (answer.role, answer.content) == ("assistant", "You said: hello there")
    assert [event.event for event in box.events] == [
        "agent:generating_started",
        "agent:generating_completed",
    ]
    assert box.messages_reported == [user.id, answer.id]
    assert list((box.folder / "config" / "chats").iterdir())
    stopped = await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert stopped.stopped == [agent.id]
    assert not running_in(box.folder / "home")
    assert agent.ended is not None
    assert await agent.messages() == [user, answer]


async def test_braces_in_arguments_stay_as_they_are(box: Machine) -> None:
    more = """args = ['{"rules": {"in": "{dir}"}}', "{", "{0}"]"""
    provider_file(box.folder, kind="braces", more=more)
    await box.stop()
    await box.start()
    agent = await box.launch(kind="braces")
    (command,) = running_in(box.folder / "home")
    assert command.endswith(f' {{"rules": {{"in": "{box.project}"}}}} {{ {{0}}')
    assert agent.status == "idle"


async def test_chunks_are_joined_into_messages_of_their_kinds(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    added = await agent.turn("chunks")
    # the plan is complete at the end of the turn only
    assert sorted(box.messages_reported) == sorted(message.id for message in added)
    assert told(added)[1:] == [
        ("assistant", "thinking", "let me think"),
        ("assistant", "thinking", "- [x] one"),
        ("assistant", "text", "abc"),
        ("assistant", "text", "d"),
    ]


async def test_a_message_has_its_open_text_while_it_is_written(box: Machine) -> None:
    await box.stop()
    box.deltas = sink = Sink()
    await box.start()
    agent = await box.launch(kind="scripted")
    await agent.say("sleep")
    await until(lambda: sink.told() == [(0, "append", "zzz")])
    _, answer = await agent.messages()
    assert [(delta.session_id, delta.message_id) for delta in sink.sent] == [(agent.id, answer.id)]
    assert answer.id not in box.messages_reported


async def test_a_tool_call_has_one_call_and_one_result(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    call, text, result = (await agent.turn("tool"))[1:]
    assert (call.role, call.kind) == ("assistant", "tool_call")
    assert json.loads(call.content) == {
        "id": "t1",
        "name": "Read it",
        "kind": "read",
        "input": {"path": "x"},
    }
    assert text.content == "meanwhile"
    assert (result.role, result.kind, result.content) == ("tool", "tool_result", "contents")


async def test_a_tool_call_is_updated_after_its_turn(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.turn("late")
    await until(lambda: agent.session.state().title == "late")
    call, result = (await agent.messages())[1:]
    assert json.loads(call.content)["name"] == "Read it, at last"
    assert result.content == "contents"


async def test_an_update_of_an_unknown_tool_call_adds_it(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    call, result = (await agent.turn("orphan"))[1:]
    assert json.loads(call.content)["name"] == "Never begun"
    assert (result.kind, result.content) == ("tool_result", "done")


async def test_a_tool_call_that_never_ends_ends_with_its_turn(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    call, result = (await agent.turn("unfinished"))[1:]
    assert (result.kind, result.content) == ("tool_result", "[no result]")
    assert call.tool is not None
    assert call.tool.status is None, "the agent has not told how it ended"


async def test_a_tool_call_of_an_interrupted_turn_has_failed(box: Machine) -> None:
    """Also if the agent ends the turn like any other."""
    agent = await box.launch(kind="scripted")
    await agent.say("unfinished-sleep")
    await until(lambda: agent.session.status == "generating")
    await agent.interrupt()
    call, result = [m for m in await agent.messages() if m.tool is not None]
    assert result.content == "[cancelled]"
    assert call.tool == result.tool
    assert call.tool is not None
    assert (call.tool.status, call.tool.ended_at) == ("failed", result.timestamp)


async def test_an_edit_keeps_its_diff(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("edit")
    await agent.until("waiting_approval")
    patch = "--- a/work/x.py\n+++ b/work/x.py\n@@ -1,2 +1,2 @@\n-a\n+x\n b\n"
    diff = [FileDiff(path="/work/x.py", patch=patch)]
    pending = agent.session.state().pending_action
    assert pending is not None
    assert pending.diff == diff
    await agent.session.resolve(ResolveAction(action="approve"))
    await agent.until("idle")
    call, result = [m for m in await agent.messages() if m.tool is not None]
    assert (
        call.tool
        == result.tool
        == Tool(
            id="e1",
            kind="edit",
            title="Edit x.py",
            status="completed",
            diff=diff,
            locations=[FileLocation(path="/work/x.py", line=1)],
            started_at=call.timestamp,
            ended_at=result.timestamp,
        )
    )
    saved = ChatLog(chat_file(box.folder / "config" / "chats", agent.id), lambda: 0)
    assert saved.messages() == await agent.messages()


@pytest.mark.parametrize(
    ("command", "status", "exit_code"), [("exit 3", "failed", 3), ("exit 0", "completed", 0)]
)
async def test_a_failed_command_is_a_failed_call(
    box: Machine, command: str, status: str, exit_code: int
) -> None:
    """Also if the agent reports the call as completed."""
    agent = await box.launch(kind="scripted")
    call, result, *_ = (await agent.turn(f"terminal {command}"))[1:]
    assert call.tool is not None
    assert call.tool == result.tool
    assert (call.tool.status, call.tool.exit_code) == (status, exit_code)


@pytest.mark.parametrize(("action", "option"), [("approve", "yes"), ("reject", "no")])
async def test_an_answered_permission_request_reaches_the_agent(
    box: Machine, action: Any, option: str
) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("permission")
    await agent.until("waiting_approval")
    pending = agent.session.state().pending_action
    assert pending is not None
    assert "run one" in pending.message
    assert "do one" in pending.message
    assert [(o.id, o.kind) for o in pending.options] == [
        ("yes", "allow_once"),
        ("ever", "allow_always"),
        ("no", "reject_once"),
    ]
    with pytest.raises(ApiError) as refused:
        await agent.say("not now")
    assert (refused.value.status, refused.value.code) == (409, "APPROVAL_PENDING")
    results = await asyncio.gather(
        *(agent.session.resolve(ResolveAction(action=action)) for _ in range(10)),
        return_exceptions=True,
    )
    assert [r.status for r in results if isinstance(r, ApiError)] == [409] * 9
    await agent.until("idle")
    assert (await agent.messages())[-2].content == f"one:{option} "
    assert len(box.named("agent:waiting_approval")) == 1


async def test_an_option_is_chosen_by_its_id(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("permission")
    await agent.until("waiting_approval")
    await agent.session.resolve(ResolveAction(action="approve", option_id="ever"))
    await agent.until("idle")
    assert "one:ever " in [m.content for m in await agent.messages()]


async def test_a_question_without_a_way_to_reject_can_be_cancelled(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("odd-permission")
    await agent.until("waiting_approval")
    await agent.resolve("reject")
    await agent.until("idle")
    assert "odd:cancelled " in [m.content for m in await agent.messages()]


async def test_two_questions_at_once_are_asked_one_after_the_other(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("two-permissions")
    await agent.until("waiting_approval")
    await until(lambda: agent.evidence()["questions"] == 2)
    first = agent.session.state().pending_action
    assert first is not None
    assert "run one" in first.message
    await agent.session.resolve(ResolveAction(action="approve", action_id=first.id))
    second = agent.session.state().pending_action
    assert second is not None
    assert "run two" in second.message
    with pytest.raises(ApiError) as refused:
        await agent.session.resolve(ResolveAction(action="approve", action_id=first.id))
    assert refused.value.status == 409
    await agent.session.resolve(ResolveAction(action="reject", action_id=second.id))
    await agent.until("idle")
    said = "".join(m.content for m in await agent.messages() if m.role == "assistant")
    assert "one:yes" in said
    assert "two:no" in said
    assert len(box.named("agent:waiting_approval")) == 2


async def test_an_interruption_ends_the_turn(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("sleep")
    await agent.session.send(SendChat(message="later"))
    assert await agent.interrupt() == "idle"
    await until(lambda: len(box.named("agent:generating_completed")) == 2)
    assert [m.content for m in await agent.messages()] == [
        "sleep", "zzz awake", "later", "You said: later",
    ]  # fmt: skip
    with pytest.raises(ApiError) as refused:
        await agent.interrupt()
    assert refused.value.code == "NOT_GENERATING"


async def test_an_interruption_cancels_every_question_of_the_turn(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("permissions one two")
    await agent.until("waiting_approval")
    assert await agent.interrupt() == "idle"
    assert await said(agent, "assistant") == ["one:cancelled ", "two:cancelled "]
    assert len(box.named("agent:waiting_approval")) == 1
    await agent.say("permission")  # the next turn may ask again
    await agent.until("waiting_approval")
    await agent.resolve("approve")
    await agent.until("idle")


async def test_an_interruption_of_a_question_between_turns_is_not_one_of_the_next_turn(
    box: Machine,
) -> None:
    agent = await box.launch(kind="scripted")
    gate = box.folder / "gate"
    await agent.turn(f"late-permission {gate}")
    gate.touch()
    await agent.until("waiting_approval")
    assert await agent.interrupt() == "idle"
    await until(lambda: agent.evidence()["questions"] == 0)
    await agent.say("permission")
    await agent.until("waiting_approval")
    await agent.resolve("approve")
    await agent.until("idle")
    said = "".join(m.content for m in await agent.messages() if m.role == "assistant")
    assert "late:cancelled" in said
    assert "one:yes" in said


async def test_controls_are_shown_and_changed(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    state = agent.session.state()
    assert {(c.id, c.type, c.value) for c in state.controls} == {
        ("model", "select", "small"),
        ("web", "toggle", False),
        ("mode", "select", "ask"),
    }
    assert agent.session.describe().model == "Small 1"
    accepted = await agent.session.send(SendChat(controls={"mode": "plan", "web": True}))
    assert (accepted.message_id, accepted.queued) == (None, False)
    accepted = await agent.session.send(SendChat(message="hello", controls={"model": "big"}))
    assert accepted.message_id is not None
    await agent.until("idle")
    state = agent.session.state()
    assert {c.id: c.value for c in state.controls} == {"model": "big", "web": True, "mode": "plan"}
    assert [(item.label, item.value) for item in state.summary_metadata.items] == [
        ("Model", "Big 2"),
        ("Mode", "Plan only"),
    ]
    await agent.turn("mode ask")
    assert {c.id: c.value for c in agent.session.state().controls}["mode"] == "ask"


@pytest.mark.parametrize(
    ("controls", "path"),
    [({"speed": "fast"}, "controls.speed"), ({"mode": "wild"}, "controls.mode"),
     ({"web": "on"}, "controls.web"), ({"mode": True}, "controls.mode")],
)  # fmt: skip
async def test_an_unknown_control_or_value_is_refused(
    box: Machine, controls: dict[str, str | bool], path: str
) -> None:
    agent = await box.launch(kind="scripted")
    with pytest.raises(ApiError) as refused:
        await agent.session.send(SendChat(message="hello", controls=controls))
    assert refused.value.status == 400
    assert [detail.path for detail in refused.value.details] == [path]
    assert await agent.messages() == []


async def test_a_launch_chooses_a_model_by_id_or_name(box: Machine) -> None:
    for wanted in ("big", "Big 2"):
        launched = await box.sessions.launcher.launch_cli(
            LaunchCli(cli_type="scripted", dir=str(box.project), model=wanted)
        )
        assert Agent(box, launched.session_id).session.describe().model == "Big 2"
    with pytest.raises(ApiError) as refused:
        await box.sessions.launcher.launch_cli(
            LaunchCli(cli_type="scripted", dir=str(box.project), model="huge")
        )
    assert refused.value.status == 400
    assert "small, big" in refused.value.message


async def launched(box: Machine, *flags: str, model: str | None = None, more: str = "") -> Agent:
    """Launch an agent of a kind of its own."""
    provider_file(box.folder, *flags, kind="other", more=more)
    await box.stop()
    await box.start()
    request = LaunchCli(cli_type="other", dir=str(box.project), model=model)
    return Agent(box, (await box.sessions.launcher.launch_cli(request)).session_id)


async def is_set(agent: Agent) -> Any:
    """Return the mode, the model and the logins, as the agent itself has them."""
    return json.loads((await agent.turn("set"))[-1].content)


async def test_a_session_begins_in_the_mode_of_its_file(box: Machine) -> None:
    agent = await launched(box, more='mode = "Plan only"')
    assert {c.id: c.value for c in agent.session.state().controls}["mode"] == "plan"
    assert (await is_set(agent))[0] == "plan"


async def test_a_launch_fails_for_a_mode_that_the_agent_does_not_have(box: Machine) -> None:
    with pytest.raises(ApiError) as refused:
        await launched(box, more='mode = "wild"')
    assert refused.value.status == 400
    assert "no mode 'wild'; it has: ask, plan" in refused.value.message
    assert not running_in(box.folder / "home")


async def test_models_in_the_dropped_form_can_be_chosen(box: Machine) -> None:
    agent = await launched(box, "--old-models", model="old-2")
    assert agent.session.describe().model == "Older"
    await agent.session.send(SendChat(controls={"model": "old-1"}))
    assert agent.session.describe().model == "Old"
    assert (await is_set(agent))[1] == "old-1"


async def test_a_launch_logs_in_by_the_method_of_the_file(box: Machine) -> None:
    agent = await launched(box, "--login", more='authenticate = "browser"')
    assert (await is_set(agent))[2] == ["browser"]


async def test_a_picture_is_sent_to_an_agent_that_takes_pictures(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    parts: list[TextPart | ImagePart] = [
        TextPart(text="look:"),
        ImagePart(mime_type="image/png", data="aGVsbG8="),
    ]
    await agent.session.send(SendChat(input=ChatInput(parts=parts)))
    await agent.until("idle")
    assert [m.content for m in await agent.messages()] == [
        "look:\n[image: image/png]",
        "You said: look:\n[image]",
    ]


async def test_a_picture_is_sent_as_text_to_an_agent_that_takes_none(box: Machine) -> None:
    provider_file(box.folder, "--no-images", kind="blind")
    await box.stop()
    await box.start()
    agent = await box.launch(kind="blind")
    picture = ImagePart(mime_type="image/png", data="aGVsbG8=")
    message = ChatInput(parts=[picture], text_fallback="a picture of a cat")
    await agent.session.send(SendChat(input=message))
    await agent.until("idle")
    assert (await agent.messages())[0].content == "a picture of a cat"
    with pytest.raises(ApiError) as refused:
        await agent.session.send(SendChat(input=ChatInput(parts=[picture])))
    assert refused.value.status == 400
    assert agent.status == "idle"


async def test_title_and_usage_are_shown(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.turn("title Fixing the bug")
    state = agent.session.state()
    assert state.title == "Fixing the bug"
    assert "10 of 100 tokens" in [item.value for item in state.summary_metadata.items]


async def test_an_answer_cut_off_by_a_limit_has_a_notice(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    (note,) = (await agent.turn("stop max_tokens"))[1:]
    assert (note.role, note.content) == (
        "system",
        "The answer was cut off: the model's limit of tokens is reached",
    )


async def test_an_agent_has_its_environment_and_directory(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    added = await agent.turn("terminal env; pwd")
    result = next(m.content for m in added if m.kind == "tool_result")
    assert "OUTRIDER" not in result
    (answer,) = [m for m in added if m.role == "assistant" and m.kind == "text"]
    assert json.loads(answer.content)[1]["truncated"] is True  # it asked for ten bytes


async def test_chats_of_unknown_sessions_are_deleted_at_the_start(
    box: Machine, tmp_path: Path
) -> None:
    folder = box.folder / "config" / "chats"
    folder.mkdir()
    stray = folder / "session_00000000000000000000000000.jsonl"
    stray.write_text("{}\n")
    await box.stop()
    await box.start()
    assert not stray.exists()


async def test_sessions_that_have_ended_leave_only_their_records(box: Machine) -> None:
    await end_many(box, "scripted", 2)
    before = objects_of_agents()
    await end_many(box, "scripted", 8)
    assert objects_of_agents() == before
