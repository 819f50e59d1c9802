"""What an IDE does to Outrider: reload, crash, hide, lose its parts, be closed."""

import asyncio
import time

import pytest

from outrider.contract.commands import (
    ReadChat,
    ResolveAction,
    Screenshot,
    SendChat,
)
from outrider.contract.errors import ApiError
from tests.machine.agents.ide.desk import Desk, Ide
from tests.machine.agents.machine import until
from tests.machine.agents.scenario import stays

pytestmark = [pytest.mark.ide, pytest.mark.timeout(300)]


async def error_of(ide: Ide, part: str, seconds: float | None = None) -> str:
    """Wait until the status is `error`, with `part` in the text."""
    await ide.until("error", seconds=seconds)
    assert part in ide.error
    return ide.error


async def test_a_conversation_has_its_messages_and_events(faulty: Desk) -> None:
    ide = await faulty.open()
    assert ide.session.describe().cdp_connected
    message_id = await ide.say("hello WORK:300")
    assert ide.status == "generating"
    await ide.until("idle")
    user, answer = await ide.messages()
    assert (user.id, user.role, user.content) == (message_id, "user", "hello WORK:300")
    assert answer.content == "You said: hello WORK:300"
    assert ide.session.state().title == "alpha chat"
    await ide.say("at once")  # an answer without any sign of work
    await ide.until("idle")
    assert faulty.event_names() == ["generating_started", "generating_completed"] * 2
    await until(lambda: len(faulty.messages_reported) == 4)
    assert faulty.messages_reported == [message.id for message in await ide.messages()]


async def test_an_interruption_ends_the_turn(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.say("hello WORK:60000")
    assert await ide.interrupt() == "idle"
    await ide.say("WORK:60000")
    await ide.session.send(SendChat(message="now", delivery="interrupt"))
    await ide.until("idle")
    assert (await ide.messages())[-1].content == "You said: now"


async def test_the_control_to_stop_is_waited_for(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("$('busy').style.display = 'none'")
    await ide.say("hello WORK:60000")
    await ide.script("setTimeout(() => ($('busy').style.display = ''), 500)")
    assert await ide.interrupt() == "idle"


async def test_an_agent_without_a_control_to_stop_cannot_be_interrupted(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.session.send(SendChat(message="WORK:2000", agent_type="beta"))
    with pytest.raises(ApiError, match="names no `stop` control for it") as refused:
        await ide.interrupt()
    assert refused.value.status == 400
    with pytest.raises(ApiError, match="Only agents in a terminal have a screen") as refused:
        await ide.session.screen()
    assert refused.value.status == 400


async def test_every_message_arrives_as_it_was_written(faulty: Desk) -> None:
    ide = await faulty.open()
    for text in (
        "several\nlines  with spaces",
        "quotes ' \" ` $HOME",
        "ünïcödé 🎉 漢字",
        "<b>x</b>",
    ):
        added = await ide.turn(text)
        assert [m.content for m in added if m.role == "user"] == [text]


async def test_a_send_button_that_appears_late_is_waited_for(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("$('send').style.display = 'none'")
    await ide.script("setTimeout(() => ($('send').style.display = ''), 1500)")
    assert (await ide.turn("hello"))[0].content == "hello"


async def test_a_list_that_draws_only_what_is_in_sight_is_read_whole(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("for (let n = 0; n < 300; n++) add('agent', 'row ' + n)")
    messages = await ide.messages()
    assert [message.content for message in messages] == [f"row {n}" for n in range(300)]
    assert await ide.messages() == messages


async def test_a_question_gets_exactly_one_answer(faulty: Desk) -> None:
    ide = await faulty.open()
    seen = []
    for action in ("approve", "reject"):
        await ide.say("ASK")
        await ide.until("waiting_approval")
        pending = ide.session.state().pending_action
        assert pending is not None
        assert pending.message == "May I ASK?"
        assert [o.kind for o in pending.options] == ["allow_once", "reject_once"]  # the hidden: not
        seen.append(pending.id)
        with pytest.raises(ApiError) as refused:
            await ide.say("not now")
        assert (refused.value.status, refused.value.code) == (409, "APPROVAL_PENDING")
        request = ResolveAction(action="approve" if action == "approve" else "reject")
        answers = await asyncio.gather(
            *(ide.session.resolve(request) for _ in range(5)), return_exceptions=True
        )
        assert [a.status for a in answers if isinstance(a, ApiError)] == [409] * 4
        await ide.until("idle")
    assert seen[0] != seen[1]
    assert await ide.script("window.clicks") == 2
    contents = [message.content for message in await ide.messages()]
    assert contents[1] == "answered yes"
    assert contents[4] == "answered no"
    assert len(faulty.named("agent:waiting_approval")) == 2


async def asked(faulty: Desk) -> tuple[Ide, str]:
    """Launch the IDE and have it ask; return the action's id, too."""
    ide = await faulty.open()
    await ide.say("ASK")
    await ide.until("waiting_approval")
    return ide, pending_of(ide)


def pending_of(ide: Ide) -> str:
    pending = ide.session.state().pending_action
    assert pending is not None
    return pending.id


async def test_a_question_that_is_drawn_anew_is_the_same_one(faulty: Desk) -> None:
    ide, action = await asked(faulty)
    for _ in range(3):
        await ide.script("redraw(150)")
        await stays(ide, "waiting_approval", 0.4)
        assert pending_of(ide) == action
    await ide.script("redraw(150)")
    await ide.session.resolve(ResolveAction(action="approve", action_id=action))
    await ide.until("idle")
    assert await ide.script("window.clicks") == 1
    assert len(faulty.named("agent:waiting_approval")) == 1


async def test_an_answer_never_goes_to_another_question(faulty: Desk) -> None:
    ide, action = await asked(faulty)
    await ide.script("redraw(150, 'May I do worse?')")
    with pytest.raises(ApiError) as refused:
        await ide.resolve("approve")
    assert refused.value.status == 409
    assert await ide.script("window.clicks") is None
    await until(lambda: ide.session.state().pending_action is not None)
    assert pending_of(ide) != action
    await ide.resolve("approve")
    await ide.until("idle")
    assert await ide.script("window.clicks") == 1


async def test_a_question_that_a_person_answers_is_over(faulty: Desk) -> None:
    ide, _ = await asked(faulty)
    await ide.script("document.querySelector('.yes').click()")
    await ide.until("idle")
    with pytest.raises(ApiError) as refused:
        await ide.resolve("approve")
    assert (refused.value.status, refused.value.code) == (409, "NO_PENDING_ACTION")


async def test_several_agents_one_of_them_in_nested_frames(faulty: Desk) -> None:
    ide = await faulty.open()
    await until(lambda: len(ide.session.describe().agents) == 2)
    await ide.turn("for alpha")
    await ide.session.send(SendChat(message="for beta WORK:500", agent_type="beta"))
    agents = {agent.name: agent.status for agent in ide.session.describe().agents}
    assert agents == {"Alpha": "idle", "Beta": "generating"}
    with pytest.raises(ApiError) as refused:
        await ide.session.send(SendChat(message="and you?", agent_type="alpha"))
    assert refused.value.status == 409
    await ide.until("idle")
    for agent in ("alpha", "beta"):
        chat = await ide.session.read(ReadChat(agent_type=agent))
        assert chat.agent_type == agent
        assert chat.messages[0].content.startswith(f"for {agent}")
    assert ide.session.state().agent_type == "beta"  # the one used last
    assert ide.session.state("Alpha").agent_type == "alpha"
    with pytest.raises(ApiError) as unknown:
        await ide.session.read(ReadChat(agent_type="gamma"))
    assert unknown.value.status == 404


async def test_an_error_that_the_agent_shows(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.say("WORK:200 SAYERROR")
    await error_of(ide, "no credit left")
    assert len(faulty.named("agent:error")) == 1
    await ide.turn("and on")


async def test_an_agent_that_does_nothing_upon_a_message(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.say("SILENT")
    await error_of(ide, "did not begin to answer within 4 s")
    await ide.turn("hello")


async def test_a_reload_of_the_page_keeps_the_session(faulty: Desk) -> None:
    ide = await faulty.open()
    before = await ide.turn("hello")
    await ide.script("setTimeout(() => location.reload(), 10)")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        assert ide.status == "idle", ide.evidence()
        await asyncio.sleep(0.05)
    assert await ide.messages() == before
    assert (await ide.turn("after it"))[0].content == "after it"
    assert not faulty.named("agent:error")


async def test_the_page_changes_only_its_address(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("history.pushState({}, '', '?faulty&more')")
    end = time.monotonic() + 4  # a chat that is missed is an error after 3 s
    while time.monotonic() < end:
        assert ide.status == "idle", ide.evidence()
        assert ide.shown
        await asyncio.sleep(0.05)


async def test_the_page_crashes_and_is_loaded_again(faulty: Desk) -> None:
    ide = await faulty.open()
    before = await ide.turn("hello")
    session = await ide.page.context.new_cdp_session(ide.page)
    crashing = asyncio.ensure_future(session.send("Page.crash"))
    await error_of(ide, "has crashed")
    crashing.cancel()
    with pytest.raises(ApiError) as refused:
        await ide.say("anybody?")
    assert refused.value.status == 500
    assert await ide.messages() == before
    with pytest.raises(ApiError) as hidden:
        await ide.session.screenshot(Screenshot())
    assert hidden.value.status == 409
    await ide.load_again()
    await until(lambda: ide.evidence()["page"] == "there")  # from here on it takes a message
    assert (await ide.turn("after it"))[0].content == "after it"


async def test_a_page_is_there_once_it_is_watched(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("delete window.__outrider")  # as in a page that was loaded without a daemon
    await faulty.stop()
    await faulty.start()
    await until(lambda: ide.evidence()["page"] == "there")
    assert (await ide.turn("hello"))[0].content == "hello"


async def test_a_message_to_a_hidden_chat_is_refused(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("document.getElementById('panel').style.display = 'none'")
    await until(lambda: not ide.shown)
    assert ide.status == "idle"
    with pytest.raises(ApiError) as refused:
        await ide.say("into the dark")
    assert "hidden" in refused.value.message
    await ide.script("window.panel = document.getElementById('panel'); panel.remove()")
    await error_of(ide, "The chat of Alpha is not there")
    await ide.script("panel.style.display = ''; document.body.append(panel)")
    await ide.until("idle")
    assert (await ide.turn("hello"))[0].content == "hello"


async def test_a_missing_input_is_an_error(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("document.getElementById('text').id = 'another'")
    await error_of(ide, "The input of Alpha is not where")
    await ide.script("document.getElementById('another').id = 'text'")
    await ide.until("idle")


async def test_a_hanging_page_is_an_error_within_the_limit(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script(
        "setTimeout(() => { for (const end = Date.now() + 15000; Date.now() < end;); })"
    )
    await error_of(ide, "does not answer", seconds=14.5)
    await ide.until("idle", seconds=12)


async def test_a_closed_window_is_an_error(faulty: Desk) -> None:
    ide = await faulty.open()
    before = await ide.turn("hello")
    context = ide.page.context
    other = await context.new_page()
    await ide.page.close()
    await error_of(ide, "was closed")
    assert await ide.messages() == before
    with pytest.raises(ApiError) as refused:
        await ide.session.screenshot(Screenshot())
    assert refused.value.status == 409
    await other.close()


async def test_a_killed_ide_ends_its_session(faulty: Desk) -> None:
    ide = await faulty.open()
    before = await ide.turn("hello")
    ide.processes()[0].kill()
    await error_of(ide, "has ended")
    assert not ide.session.describe().cdp_connected
    assert await ide.messages() == before
    with pytest.raises(ApiError) as refused:
        await ide.say("anybody?")
    assert refused.value.status == 500
    await faulty.shut(ide)
    assert not faulty.sessions.describe()


async def test_a_daemon_that_is_killed_finds_the_ide_again(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.turn("hello")
    await ide.say("ASK later")
    await ide.until("waiting_approval")
    asked = ide.session.state().pending_action
    before = await ide.messages()
    await faulty.stop()
    await faulty.start()
    await ide.until("waiting_approval")
    assert ide.session.state().pending_action == asked
    assert await ide.messages() == before
    assert len(faulty.named("agent:waiting_approval")) == 1
    await ide.resolve("approve")
    await ide.until("idle")
    assert not faulty.named("agent:error")


async def test_a_daemon_that_starts_again_is_slow_to_connect(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.turn("hello")
    browser = ide.processes()[0]
    await faulty.stop()
    browser.suspend()
    try:
        await faulty.start()
        await stays(ide, "idle", 4)
    finally:
        browser.resume()
    await until(lambda: ide.evidence()["page"] == "there")
    assert ide.status == "idle"
    assert not faulty.named("agent:error")


async def test_a_message_that_a_restart_came_upon_is_awaited(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.script("$('send').onclick = () => add('user', $('text').value)")
    await ide.say("hello")  # taken, and nothing has come of it yet
    await faulty.stop()
    await faulty.start()
    await until(lambda: ide.session.describe().cdp_connected and ide.shown)
    await stays(ide, "generating", 1)
    await ide.script("add('agent', 'here I am')")
    await ide.until("idle")
    assert faulty.event_names() == ["generating_started", "generating_completed"]


async def test_an_ide_without_a_debugging_port_can_only_be_stopped(faulty: Desk) -> None:
    ide = await faulty.open(cdp=False)
    assert not ide.session.describe().cdp_connected
    with pytest.raises(ApiError) as refused:
        await ide.say("hello")
    assert (refused.value.status, "enableCdp" in refused.value.message) == (409, True)
