"""One scenario for every kind of real agent, in a real tmux, against a stub model."""

import asyncio
import contextlib
import uuid
from pathlib import Path

import psutil
import pytest

from outrider.contract.commands import ResolveAction, SendChat, StopCli
from outrider.contract.errors import ApiError
from tests.machine.agents.kinds import KINDS
from tests.machine.agents.machine import Machine, StubModel, kill_server, running_in, until
from tests.machine.agents.scenario import (
    SPECIAL,
    interrupt,
    param,
    press,
    repository,
    said,
    stays,
    stays_until,
    wants,
)
from tests.machine.sessions.test_deltas import Sink

pytestmark = pytest.mark.timeout(300)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with every kind; an agent that cannot do what it is about is left out."""
    name = metafunc.function.__name__
    metafunc.parametrize("kind", [param(kind, name) for kind in KINDS])


async def test_from_launch_to_stop(box: Machine) -> None:
    agent = await box.launch()
    assert agent.status == "idle"
    pid = agent.pid
    environment = psutil.Process(pid).environ()
    assert not [name for name in environment if name.startswith(("OUTRIDER_", "TMUX"))]
    assert environment["HOME"] == box.environment["HOME"]
    assert environment["AGENT_SESSION_ID"] == agent.id

    message_id = await agent.say("hello there")
    assert "generating" in [status for _, status in box.statuses]
    await agent.until("idle")
    user, answer = await agent.messages()
    assert (user.id, user.role, user.content) == (message_id, "user", "hello there")
    assert (answer.role, answer.content) == ("assistant", "Hello from stub. You said: hello there")
    assert [event.event for event in box.events] == [
        "agent:generating_started",
        "agent:generating_completed",
    ]
    await until(lambda: box.messages_reported == [user.id, answer.id])

    running = [process.pid for process in psutil.Process(pid).children(recursive=True)]
    stopped = await box.sessions.ending.stop(StopCli(cli_type=box.kind.type))
    assert stopped.stopped == [agent.id]
    await until(lambda: not any(map(psutil.pid_exists, [pid, *running])))  # reaped
    assert not running_in(Path(box.environment["HOME"]))


async def test_the_text_of_an_answer_while_it_is_written(box: Machine) -> None:
    await box.stop()
    box.deltas = sink = Sink()
    await box.start()
    agent = await box.launch()
    _, *_, answer = await agent.turn("hello SLOW:0.2")
    assert [delta.message_id for delta in sink.sent] == [answer.id] * len(sink.sent)
    assert [delta.revision for delta in sink.sent] == list(range(len(sink.sent)))
    text = ""
    for delta in sink.sent:
        text = text + delta.text if delta.op == "append" else delta.text
        assert "".join(answer.content.split()).startswith("".join(text.split()))
    assert text


async def test_answers_are_exact(box: Machine, model: StubModel) -> None:
    agent = await box.launch()
    for text in ("be SLOW:0.02", "be LONG SLOW:0", "use MD"):
        await agent.turn(text)
        assert (await said(agent, "assistant"))[-1] == model.answer(text)
    assert box.event_names() == ["generating_started", "generating_completed"] * 3


async def test_an_answer_of_ten_thousand_lines_is_complete(box: Machine, model: StubModel) -> None:
    agent = await box.launch()
    await agent.say("LINES:10000")
    await agent.until("idle", seconds=200)  # opencode draws all of it, again and again
    (answer,) = await said(agent, "assistant")
    assert len(answer.splitlines()) == 10_000
    assert answer == model.answer("LINES:10000")


async def test_every_message_arrives_as_it_was_written(box: Machine) -> None:
    (box.project / "approved.txt").touch()
    agent = await box.launch()
    ids = []
    for text in SPECIAL:
        added = await agent.turn(text)
        arrived = text.strip() if box.kind.trims else text
        assert [(m.role, m.content) for m in added if m.role == "user"] == [("user", arrived)]
        ids += [m.id for m in added]
    before = await agent.messages()
    assert [message.id for message in before] == ids
    await box.stop()
    await box.start()
    assert await agent.messages() == before


async def test_no_message_changes_its_id_or_time(box: Machine) -> None:
    agent = await box.launch()
    seen: dict[int, tuple[str, int]] = {}

    async def read_again_and_again() -> None:
        while True:
            for message in await agent.messages():
                identity = message.id, message.timestamp
                assert seen.setdefault(message.index, identity) == identity, message
            await asyncio.sleep(0.01)

    reading = asyncio.create_task(read_again_and_again())
    try:
        for number in range(3):
            await agent.turn(f"hello {number} SLOW:0.1")
        await wants(agent, "touch approved")
        await agent.resolve("approve")
        await agent.until("idle")
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    await box.stop()
    await box.start()
    after = {message.index: (message.id, message.timestamp) for message in await agent.messages()}
    assert after.items() >= seen.items()


async def test_approve_and_reject(box: Machine) -> None:
    agent = await box.launch()
    await wants(agent, "touch approved")
    pending = agent.session.state().pending_action
    assert pending is not None
    assert "touch approved" in pending.message
    assert tuple(option.kind for option in pending.options) == box.kind.offers
    with pytest.raises(ApiError) as refused:
        await agent.say("not now")
    assert (refused.value.status, refused.value.code) == (409, "APPROVAL_PENDING")
    results = await asyncio.gather(
        *(agent.session.resolve(ResolveAction(action="approve")) for _ in range(10)),
        return_exceptions=True,
    )
    assert [r.status for r in results if isinstance(r, ApiError)] == [409] * 9
    assert len(results) == 10
    await agent.until("idle")
    assert (box.project / "approved").exists()

    await wants(agent, "touch rejected")
    await agent.resolve("reject")
    await agent.until("idle")
    assert not (box.project / "rejected").exists()
    kinds = [message.kind for message in await agent.messages()]
    if box.kind.records_tools:
        assert kinds.count("tool_call") == kinds.count("tool_result") == 2
    assert len(box.named("agent:waiting_approval")) == 2
    assert (await agent.turn("and now"))[0].content == "and now"


async def test_always(box: Machine) -> None:
    agent = await box.launch()
    await wants(agent, "touch again")
    pending = agent.session.state().pending_action
    assert pending is not None
    always = next(option for option in pending.options if option.kind == "allow_always")
    await agent.session.resolve(ResolveAction(action="approve", option_id=always.id))
    await agent.until("idle")
    (box.project / "again").unlink()
    await agent.turn(box.kind.wants("touch again"))
    assert (box.project / "again").exists()
    assert len(box.named("agent:waiting_approval")) == 1


async def test_two_identical_questions_are_two_actions(box: Machine) -> None:
    agent = await box.launch()
    seen = []
    for _ in range(2):
        await wants(agent, "touch same")
        pending = agent.session.state().pending_action
        assert pending is not None
        seen.append(pending.id)
        await agent.session.resolve(ResolveAction(action="reject", action_id=pending.id))
        await agent.until("idle")
    assert seen[0] != seen[1]
    with pytest.raises(ApiError) as refused:
        await agent.session.resolve(ResolveAction(action="approve", action_id=seen[0]))
    assert refused.value.status == 409


async def test_queued_messages_arrive_in_order(box: Machine, model: StubModel) -> None:
    agent = await box.launch()
    first = f"first {uuid.uuid4().hex} SLOW:0.05"
    await agent.say(first)
    assert agent.status == "generating" or model.has("last", first)  # the machine may be that slow
    for text in ("second", "third", "fourth"):
        sent = await agent.session.send(SendChat(message=text))
        assert sent.queued or model.has("last", first)
    await until(lambda: len(box.named("agent:generating_completed")) == 4, 3 * box.kind.seconds)
    assert await said(agent, "user") == [first, "second", "third", "fourth"]
    assert agent.status == "idle"


async def test_the_model_refuses(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("give ERROR400")
    await agent.until("error")
    assert box.kind.bad_request in (agent.session.state().error or "")
    assert len(box.named("agent:error")) == 1
    assert await said(agent, "user") == ["give ERROR400"]
    assert (await agent.turn("go on"))[0].content == "go on"


async def test_the_model_fails(box: Machine) -> None:
    agent = await box.launch()
    await agent.say("give ERROR500")
    if box.kind.retries:
        await stays(agent, "generating", 3)
        await interrupt(agent)
        await agent.until("idle", "error")
    else:
        await agent.until("error")
    assert (await agent.turn("and on"))[0].content == "and on"


async def test_a_silent_model_is_still_generating(box: Machine, model: StubModel) -> None:
    agent = await box.launch()
    text = f"think {uuid.uuid4().hex} over SILENT:{box.kind.silence}"
    await agent.say(text)
    await stays_until(agent, "generating", lambda: model.has("req", text))
    assert not model.has("first", text)
    await stays_until(agent, "generating", lambda: model.has("first", text))
    await agent.until("idle")
    assert await said(agent, "assistant") == [f"Hello from stub. You said: {text}"]
    assert box.event_names() == ["generating_started", "generating_completed"]


async def test_a_turn_that_is_interrupted_is_over(box: Machine, model: StubModel) -> None:
    agent = await box.launch()
    text = f"HANG {uuid.uuid4().hex}"
    await agent.say(f"{text}\nwith a second line")
    await stays_until(agent, "generating", lambda: model.has("req", text))
    await stays(agent, "generating", 1)
    assert not box.named("agent:generating_completed")
    await interrupt(agent)
    await agent.until("idle")
    # the agent may have put the prompt back into its input; it must not become part of the next
    assert (await agent.turn("after that"))[0].content == "after that"


async def test_interrupt(box: Machine, model: StubModel) -> None:
    agent = await box.launch()
    with pytest.raises(ApiError) as refused:
        await agent.interrupt()
    assert (refused.value.status, refused.value.code) == (409, "NOT_GENERATING")

    text = f"count {uuid.uuid4().hex} SLOW:1"
    await agent.say(text)
    await stays_until(agent, "generating", lambda: model.has("first", text))
    assert await agent.interrupt() in {"idle", "error"}
    await stays(agent, agent.status, 1)  # and not the pause before the turn goes on
    assert not model.has("last", text)
    assert box.event_names()[-1] in {"generating_completed", "error"}

    text = f"HANG {uuid.uuid4().hex}"
    await agent.say(text)
    await stays_until(agent, "generating", lambda: model.has("req", text))
    later = await agent.session.send(SendChat(message="now", delivery="interrupt"))
    assert not later.queued
    await agent.until("idle")
    assert (await said(agent, "assistant"))[-1] == "Hello from stub. You said: now"


async def test_interrupt_a_question(box: Machine) -> None:
    agent = await box.launch()
    await wants(agent, "touch interrupted")
    assert await agent.interrupt() in {"idle", "error"}
    assert agent.session.state().pending_action is None
    await stays(agent, agent.status, 1)
    await agent.say("after that")  # of which Gemini's model gets both messages, and asks again
    assert (await said(agent, "user"))[-1] == "after that"
    await agent.until("idle", "waiting_approval")
    assert not (box.project / "interrupted").exists()


async def test_a_daemon_that_is_killed_in_the_middle_of_a_turn(
    box: Machine, model: StubModel
) -> None:
    agent = await box.launch()
    text = f"hello {uuid.uuid4().hex} SLOW:0.1"
    message_id = await agent.say(text)
    await box.stop()
    await box.start()
    assert agent.status == "generating" or model.has("last", text)  # the machine may be that slow
    await agent.until("idle")
    assert box.event_names() == ["generating_started", "generating_completed"]
    user, answer = await agent.messages()
    assert user.id == message_id
    assert answer.content == model.answer("hello SLOW:0")

    text = f"hello {uuid.uuid4().hex} SLOW:0.02"
    await agent.say(text)
    await box.stop()
    await until(lambda: model.has("last", text))  # the turn ends while there is no daemon
    await box.start()
    await agent.until("idle")
    assert box.event_names() == ["generating_started", "generating_completed"] * 2


async def test_a_daemon_that_is_killed_while_the_agent_asks(box: Machine) -> None:
    agent = await box.launch()
    await wants(agent, "touch later")
    before = agent.session.state().pending_action
    await box.stop()
    await box.start()
    await agent.until("waiting_approval", seconds=box.kind.found)
    assert agent.session.state().pending_action == before
    assert len(box.named("agent:waiting_approval")) == 1
    await agent.resolve("approve")
    await agent.until("idle")
    assert (box.project / "later").exists()


async def test_the_tmux_server_is_killed(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("hello")
    kill_server(box.socket)
    await agent.until("error")
    assert "tmux server has ended" in agent.error
    assert len(await agent.messages()) == 2
    await until(lambda: agent.ended is not None)
    with pytest.raises(ApiError) as refused:
        await agent.say("anybody?")
    assert refused.value.status == 404
    await box.stop()
    await box.start()
    assert agent.status == "error"
    again = await box.launch()
    assert (await again.turn("hello"))[0].content == "hello"


async def test_a_stopped_session_is_resumed(box: Machine) -> None:
    agent = await box.launch()
    await agent.turn("the word is NOTE-apple")
    await agent.say("give ERROR400")
    await agent.until("error")
    before = await agent.messages()
    await agent.stop()
    assert await agent.messages() == before
    if not box.kind.resumes:
        with pytest.raises(ApiError) as refused:
            await agent.resume()
        assert (refused.value.status, refused.value.code) == (409, "NOT_RESUMABLE")
        return
    await agent.resume()
    assert agent.status == "idle"
    assert await agent.messages() == before
    added = await agent.turn("RECALL it")
    assert [m.content for m in added if m.role == "user"] == ["RECALL it"]
    assert added[-1].content == "You told me: NOTE-apple"
    after = await agent.messages()
    assert after[: len(before)] == before
    await until(lambda: sorted(box.messages_reported) == sorted(m.id for m in after))
    await box.stop()
    await box.start()
    await agent.until("idle")
    assert await agent.messages() == after


async def test_a_session_without_a_message_is_resumed(box: Machine) -> None:
    agent = await box.launch()
    await agent.stop()
    if box.kind.resumes:
        await agent.resume()
        assert (await agent.turn("hello"))[0].content == "hello"


async def test_a_session_is_resumed_after_a_restart_of_the_machine(
    box: Machine, model: StubModel
) -> None:
    agent = await box.launch()
    await agent.turn("the word is NOTE-pear")
    before = await agent.messages()
    text = f"count {uuid.uuid4().hex} SLOW:1"
    message_id = await agent.say(text)
    await until(lambda: model.has("first", text))
    await box.stop()
    box.kill()
    await until(lambda: not running_in(Path(box.environment["HOME"])))
    await box.start()
    if box.sessions.describe():  # the daemon has opened it again by itself, over the protocol
        await agent.until("idle", "error")
        await agent.stop()
    else:
        assert agent.ended is not None
        assert agent.ended.end_reason == "machine_restarted"
    ended = await agent.messages()
    assert ended[: len(before)] == before
    assert ended[len(before)].id == message_id
    if not box.kind.resumes:
        return
    await agent.resume()
    assert agent.status in {"idle", "error"}  # the turn was cut off
    assert (await agent.messages())[: len(ended)] == ended
    await agent.stop()
    await agent.resume()
    await box.stop()
    await box.start()
    await agent.until("idle", "error")
    added = await agent.turn("RECALL it")
    assert added[-1].content == "You told me: NOTE-pear"
    assert (await agent.messages())[: len(ended)] == ended


async def test_an_agent_that_dies_says_so(box: Machine) -> None:
    agent = await box.launch()
    psutil.Process(agent.pid).kill()
    await agent.until("error")
    assert "has ended by a signal" in agent.error
    await until(lambda: agent.ended is not None)
    assert agent.ended is not None
    assert agent.ended.end_reason == "crashed"


async def test_folder_trust_is_a_question(box: Machine, tmp_path: Path) -> None:
    strange = tmp_path / "strange"
    repository(strange)  # Codex asks only in these
    agent = await box.launch(strange)
    if not box.kind.trusts:
        assert agent.status == "idle"
        return
    assert agent.status == "waiting_approval"
    pending = agent.session.state().pending_action
    assert pending is not None
    assert "allow_once" in [option.kind for option in pending.options]
    assert "reject_once" in [option.kind for option in pending.options]
    await agent.resolve("approve")
    await agent.until("idle")
    assert (await agent.turn("hello"))[0].content == "hello"


async def test_what_a_person_types_in_the_terminal_is_seen(box: Machine) -> None:
    agent = await box.launch()
    press(agent, "-l", "typed by hand")
    await until(lambda: "typed by hand" in str(agent.evidence()["screen"]))
    await asyncio.sleep(0.3)  # an Enter right behind it would be one of a paste
    press(agent, "Enter")
    await until(lambda: bool(box.named("agent:generating_completed")), box.kind.seconds)
    assert await said(agent, "user") == ["typed by hand"]
