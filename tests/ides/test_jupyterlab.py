"""JupyterLab with jupyter-ai and its Claude persona, against the stub model."""

import asyncio
import time

import psutil
import pytest

from outrider.contract.commands import ResolveAction, Screenshot, SendChat
from outrider.contract.errors import ApiError
from tests.agents.machine import StubModel, running_in, until
from tests.agents.scenario import SPECIAL
from tests.ides.desk import Desk, Ide

pytestmark = [pytest.mark.ide, pytest.mark.timeout(120)]


async def said(ide: Ide, role: str) -> list[str]:
    """Return the texts of one side of the chat."""
    return [m.content for m in await ide.messages() if (m.role, m.kind) == (role, "text")]


async def test_from_launch_to_stop(lab: Desk, model: StubModel) -> None:
    launched = await lab.launched()
    ide = Ide(lab, launched.session_id)
    session = ide.session.describe()
    assert (launched.kind, session.status, session.cdp_connected) == ("ide", "idle", True)
    await until(lambda: bool(ide.session.describe().agents), 5)
    assert [agent.name for agent in ide.session.describe().agents] == ["Claude"]
    message_id = await ide.say("hello there")
    assert ide.status == "generating"
    await ide.until("idle", seconds=30)
    user, answer = await ide.messages()
    assert (user.id, user.role, user.content) == (message_id, "user", "hello there")
    assert answer.role == "assistant"
    assert answer.content.endswith("hello there")
    for text in ("be SLOW:0.02", "be LONG SLOW:0", "use MD"):
        await ide.turn(text)
        assert (await said(ide, "assistant"))[-1] == model.answer(text)
    assert lab.event_names() == ["generating_started", "generating_completed"] * 4
    pids = [program.pid for program in ide.adapter._programs]
    environment = psutil.Process(pids[-1]).environ()
    assert not [name for name in environment if name.startswith("OUTRIDER_")]
    command = " ".join(psutil.Process(pids[0]).cmdline() + psutil.Process(pids[1]).cmdline())
    assert environment["JUPYTER_TOKEN"] not in command
    await lab.shut(ide)
    await until(lambda: not running_in(lab.folder / "home"), 3)


async def test_every_message_arrives_as_it_was_written(lab: Desk) -> None:
    (lab.project / "approved.txt").touch()
    ide = await lab.open()
    await ide.turn("begin")
    for text in SPECIAL:
        added = await ide.turn(text)
        assert [m.content for m in added if m.role == "user"] == [text]
        assert "Hello from stub" in [m.content for m in added if m.role == "assistant"][-1]
    before = await ide.messages()
    await lab.stop()
    await lab.start()
    await ide.until("idle")
    assert await ide.messages() == before


async def test_approve_reject_and_queue(lab: Desk) -> None:
    ide = await lab.open()
    await ide.say("please TOOL[touch approved]")
    await ide.until("waiting_approval", seconds=30)
    pending = ide.session.state().pending_action
    assert pending is not None
    assert "touch approved" in pending.message
    kinds = [option.kind for option in pending.options]
    assert kinds == ["allow_always", "allow_once", "reject_once"]
    with pytest.raises(ApiError) as refused:
        await ide.say("not now")
    assert (refused.value.status, refused.value.code) == (409, "APPROVAL_PENDING")
    await lab.stop()
    await lab.start()
    await ide.until("waiting_approval")
    assert ide.session.state().pending_action == pending
    answers = await asyncio.gather(
        *(ide.session.resolve(ResolveAction(action="approve")) for _ in range(10)),
        return_exceptions=True,
    )
    assert [a.status for a in answers if isinstance(a, ApiError)] == [409] * 9
    await ide.until("idle")
    assert (lab.project / "approved").exists()
    await ide.say("please TOOL[touch rejected]")
    await ide.until("waiting_approval")
    await ide.resolve("reject")
    await ide.until("idle")
    assert not (lab.project / "rejected").exists()
    kinds_seen = [message.kind for message in await ide.messages()]
    assert kinds_seen.count("tool_call") == kinds_seen.count("tool_result") == 2
    assert len(lab.named("agent:waiting_approval")) == 2

    await ide.say("first SLOW:0.05")
    for text in ("second", "third"):
        assert (await ide.session.send(SendChat(message=text))).queued
    turns = len(lab.named("agent:generating_completed"))
    await until(lambda: len(lab.named("agent:generating_completed")) == turns + 3, 30)
    assert (await said(ide, "user"))[-3:] == ["first SLOW:0.05", "second", "third"]


async def test_errors_controls_reload_and_a_silent_model(lab: Desk) -> None:
    ide = await lab.open()
    await ide.turn("begin")
    await ide.say("give ERROR400")
    await ide.until("error", seconds=20)
    assert "400" in (ide.session.state().error or "")
    await ide.turn("go on")

    await until(  # jupyter-ai shows them a while after the persona has started
        lambda: {"model", "mode"} <= {control.id for control in ide.session.state().controls}, 20
    )
    await ide.session.send(SendChat(controls={"mode": "plan"}))
    values = {control.id: control.value for control in ide.session.state().controls}
    assert values["mode"] == "plan"
    await ide.session.send(SendChat(controls={"mode": "default"}))
    with pytest.raises(ApiError) as refused:
        await ide.session.send(SendChat(controls={"mode": "never seen"}))
    assert refused.value.status == 400

    before = await ide.messages()
    await ide.script("setTimeout(() => location.reload(), 10)")
    await asyncio.sleep(1)
    await ide.until("idle", seconds=20)
    assert await ide.messages() == before
    assert (await ide.turn("after it"))[0].content == "after it"
    assert (await ide.session.screenshot(Screenshot(width=700))).width == 700

    await ide.say("HANG")
    end = time.monotonic() + 5
    while time.monotonic() < end:
        assert ide.status == "generating", ide.evidence()
        await asyncio.sleep(0.05)
