"""What misbehaving agents do is survived: reported, bounded, and with nothing left behind."""

import asyncio
import os

import psutil
import pytest

from outrider.contract.commands import LaunchCli, SendChat, StopCli
from outrider.contract.errors import ApiError
from outrider.machine.agents.acp.connection import MAX_LINE
from outrider.machine.agents.acp.process import STDERR_KEPT
from outrider.machine.agents.acp.spec import Timeouts
from tests.machine.agents.acp.conftest import provider_file
from tests.machine.agents.machine import Agent, Machine, running_in, until


async def launch_fails(box: Machine, *flags: str, more: str = "") -> ApiError:
    """Launch an agent that cannot be launched; return why, and see that nothing of it is left."""
    provider_file(box.folder, *flags, kind="broken", more=more)
    await box.stop()
    await box.start()
    with pytest.raises(ApiError) as failed:
        await box.sessions.launcher.launch_cli(LaunchCli(cli_type="broken", dir=str(box.project)))
    assert box.sessions.describe() == []
    assert not running_in(box.folder / "home")
    assert not list((box.folder / "config" / "chats").glob("*"))
    return failed.value


async def test_a_launch_fails_if_initialize_is_never_answered(box: Machine) -> None:
    failed = await launch_fails(box, "--mute", more="ready_timeout = 0.5")
    assert failed.status == 500
    assert "did not answer initialize within 0" in failed.message


async def test_a_launch_fails_if_the_agent_ends_while_it_starts(box: Machine) -> None:
    failed = await launch_fails(box, "--die")
    assert failed.status == 500
    assert "has ended with code 4" in failed.message
    assert "cannot find my configuration" in failed.message


KEY = "sk-" + "ant-api03-" + "aB3" * 30
COMPLAINT = f"""
hints = [
    {{ match = "nothing like it", text = "No." }},
    {{ match = 'no port (?:80|443)\\b', text = "Give it a port." }},
]
[environment]
set.COMPLAINT = "no port 80\\n\\u001b[31mpassword=hunter2\\n\\n{KEY[:30]}\\u001b[0m{KEY[30:]}"
"""


@pytest.mark.parametrize(
    ("flag", "begins"),
    [
        ("--die", "Scripted has ended with code 4; its error output ends with:\nno port 80\n"),
        ("--refuses", "Scripted: my child is gone; its error output ends with:\nno port 80\n"),
    ],
)
async def test_the_start_error_has_a_hint_and_no_secrets(
    box: Machine, flag: str, begins: str
) -> None:
    message = (await launch_fails(box, flag, more=COMPLAINT)).message
    assert message.startswith(begins)
    assert message.endswith("\nGive it a port.")
    assert "password=[redacted:" in message
    assert not [secret for secret in ("hunter2", KEY[:30], KEY[30:]) if secret in message]


async def test_a_hint_for_root_is_shown_to_root_only(box: Machine) -> None:
    more = 'hints = [{ match = "configuration", text = "Not as root.", root = true }]'
    failed = await launch_fails(box, "--die", more=more)
    assert failed.message.endswith("\nNot as root.") == (os.geteuid() == 0)


async def test_a_launch_fails_for_another_protocol_version(box: Machine) -> None:
    assert "version 99" in (await launch_fails(box, "--future")).message


async def test_nobody_has_logged_in(box: Machine) -> None:
    failed = await launch_fails(box, "--login")
    assert failed.status == 500
    assert failed.message == "Scripted is not logged in (Authentication required): say please"


async def test_a_key_in_the_environment_logs_in(box: Machine) -> None:
    provider_file(
        box.folder, "--login", kind="keyed", more='[environment]\nset = { SCRIPTED_KEY = "k" }'
    )
    await box.stop()
    await box.start()
    assert (await box.launch(kind="keyed")).status == "idle"


@pytest.mark.parametrize(("rest", "says"), [("invalid", "it is invalid"), ("login", "say please")])
async def test_a_refused_message_is_an_error_and_not_in_the_chat(
    box: Machine, rest: str, says: str
) -> None:
    agent = await box.launch(kind="scripted")
    with pytest.raises(ApiError) as refused:
        await agent.say(f"refuse {rest}")
    assert refused.value.status == 500
    assert says in refused.value.message
    assert agent.status == "error"
    assert says in (agent.session.state().error or "")
    assert await agent.messages() == []
    assert (await agent.turn("hello"))[0].content == "hello"


async def test_a_message_refused_after_its_turn_has_begun_stays_in_the_chat(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("refuse-late")
    await agent.until("error")
    assert [(m.role, m.content) for m in await agent.messages()] == [
        ("user", "refuse-late"),
        ("assistant", "I begin"),
        ("system", "Invalid params after all"),
    ]


async def test_a_failed_turn_is_an_error_until_the_next_message(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("fail")
    await agent.until("error")
    assert agent.session.state().error == "Scripted: the model is gone"
    assert [(m.role, m.content) for m in await agent.messages()] == [
        ("user", "fail"),
        ("assistant", "half an ans"),
        ("system", "the model is gone"),
    ]
    assert [event.event for event in box.events][-1] == "agent:error"
    assert (await agent.turn("hello"))[1].content == "You said: hello"


@pytest.mark.parametrize("word", ["sleep", "deaf"])
async def test_a_stop_in_a_turn_leaves_no_process(box: Machine, word: str) -> None:
    """The cancel is answered by `end_turn`, or never."""
    agent = await box.launch(kind="scripted")
    await agent.say(word)
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert not running_in(box.folder / "home")


@pytest.mark.parametrize("is_in_turn", [True, False])
async def test_a_cancelled_detach_leaves_no_process(box: Machine, is_in_turn: bool) -> None:
    """As when the machine agent stops, and has no time left for it."""
    agent = await box.launch(kind="scripted")
    if is_in_turn:
        await agent.say("deaf")
    ending = asyncio.create_task(agent.session.adapter.detach())
    await asyncio.sleep(0)  # it waits for its turn, or for the task that watches it
    ending.cancel()
    await asyncio.wait({ending})
    assert ending.cancelled()
    assert not running_in(box.folder / "home")


async def test_a_stop_during_an_approval_leaves_no_process(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("permission")
    await agent.until("waiting_approval")
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert not running_in(box.folder / "home")


async def test_an_agent_that_ignores_the_end_of_its_input_is_killed(box: Machine) -> None:
    provider_file(box.folder, "--stays", kind="stays")
    await box.stop()
    await box.start()
    await box.launch(kind="stays")
    await box.sessions.ending.stop(StopCli(cli_type="stays"))
    assert not running_in(box.folder / "home")


async def restart(box: Machine, timeouts: Timeouts) -> None:
    """Start the machine agent again, whose agents may take so long from now on."""
    await box.stop()
    box.acp_timeouts = timeouts
    await box.start()


async def test_a_message_fails_if_the_agent_reads_nothing(box: Machine) -> None:
    await restart(box, Timeouts(write=0.3))
    agent = await box.launch(kind="scripted")
    psutil.Process(agent_pid(agent)).suspend()
    with pytest.raises(ApiError) as refused:
        await agent.say("x" * 1_000_000)
    assert refused.value.status == 500
    assert "has not read its input" in refused.value.message
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert not running_in(box.folder / "home")


async def test_a_control_change_without_an_answer_fails(box: Machine) -> None:
    await restart(box, Timeouts(answer=0.3))
    agent = await box.launch(kind="scripted")
    psutil.Process(agent_pid(agent)).suspend()
    with pytest.raises(ApiError) as refused:
        await agent.session.send(SendChat(controls={"mode": "plan"}))
    assert refused.value.status == 500


async def test_a_session_may_be_opened_for_longer_than_an_answer_takes(box: Machine) -> None:
    await restart(box, Timeouts(answer=0))
    agent = await box.launch(kind="scripted")
    assert agent.status == "idle"
    with pytest.raises(ApiError, match="did not answer the change"):
        await agent.session.send(SendChat(controls={"mode": "plan"}))


async def test_output_that_is_no_message_is_skipped(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert (await agent.turn("rubbish"))[1].content == "still here"
    evidence = agent.evidence()
    assert "this is no JSON" in str(evidence["unreadableOutput"])
    assert evidence["unreadableUpdates"] == 2


async def test_an_endless_line_is_skipped(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert (await agent.turn("rubbish huge"))[1].content == "still here"
    assert f"a line of more than {MAX_LINE} bytes" in str(agent.evidence()["unreadableOutput"])


async def test_a_line_with_half_a_character_is_skipped(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert (await agent.turn("emoji"))[1].content == "half ?"


async def test_updates_of_another_session_are_ignored(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert [m.content for m in (await agent.turn("foreign"))[1:]] == ["ours"]


async def test_a_flood_of_standard_error_does_not_hinder_a_turn(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    assert (await agent.turn("stderr 20000"))[1].content == "flooded"  # 20 MB
    stderr = str(agent.evidence()["stderr"])
    assert len(stderr) <= STDERR_KEPT
    await until(lambda: "the last complaint" in str(agent.evidence()["stderr"]))


async def test_a_crash_in_a_turn_ends_the_session(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.say("crash")
    await until(lambda: agent.ended is not None)
    error = agent.error
    assert "has ended with code 7" in error
    assert "boom: it all went wrong" in error
    assert [m.content for m in await agent.messages()] == ["crash", "about to"]
    with pytest.raises(ApiError) as refused:
        await agent.say("anybody?")
    assert refused.value.status == 404
    assert [event.event for event in box.events] == ["agent:generating_started", "agent:error"]
    assert agent.ended is not None
    assert agent.ended.end_reason == "crashed"


async def test_a_killed_idle_agent_ends_its_session(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    psutil.Process(agent_pid(agent)).kill()
    await agent.until("error")
    assert "by a signal (9)" in agent.error


async def test_children_of_an_agent_end_with_it(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.turn("orphan-crash")
    assert len(running_in(box.folder / "home")) == 3
    await box.sessions.ending.stop(StopCli(cli_type="scripted"))
    assert not running_in(box.folder / "home")


async def test_a_child_that_outlives_its_agent_does_not_keep_the_session(box: Machine) -> None:
    """The child holds the agent's pipes; the agent's end is seen all the same."""
    agent = await box.launch(kind="scripted")
    await agent.say("orphan-crash now")
    await agent.until("error")
    home = box.folder / "home"
    # Out of reach: a child that has left the session and lost its parent before we looked.
    await until(lambda: len(running_in(home)) == 1, why=lambda: str(running_in(home)))
    for process in psutil.process_iter():
        if _home_of(process) == str(home):
            process.kill()


async def test_a_message_of_ten_megabytes_arrives(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    await agent.turn("big 10000000")
    assert (await agent.messages())[-1].content == "m" * 10_000_000
    await agent.turn("big 20000000")
    again = (await agent.messages())[-1]
    assert len(again.content) < 13_000_000
    assert again.content.endswith("[outrider: the rest is left out here]")


async def test_approvals_over_the_limit_are_cancelled(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    gate = box.folder / "gate"
    await agent.say(f"requests 500 {gate}")
    await until(lambda: agent.evidence()["questions"] == 32)
    await agent.until("waiting_approval")
    gate.touch()
    await agent.until("idle")  # the turn's end answers all of them as cancelled
    assert agent.evidence()["questions"] == 0


async def test_a_thousand_chunks_become_one_message(box: Machine) -> None:
    agent = await box.launch(kind="scripted")
    (answer,) = (await agent.turn("stream 10000"))[1:]
    assert answer.content.split() == [str(index) for index in range(10_000)]


async def test_two_agents_run_at_once(box: Machine) -> None:
    first, second = await asyncio.gather(box.launch(kind="scripted"), box.launch(kind="scripted"))
    await asyncio.gather(first.turn("stderr 2000"), second.turn("chunks"))
    assert [first.status, second.status] == ["idle", "idle"]


def agent_pid(agent: Agent) -> int:
    home = str(agent.machine.folder / "home")
    (pid,) = [p.pid for p in psutil.process_iter() if _home_of(p) == home]
    return pid


def _home_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("HOME")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
