"""What real IDEs do besides the scenario of all agents: faults, settings, pictures."""

import asyncio

import pytest

from outrider.contract.commands import ChatDebug, Screenshot, SendChat
from outrider.contract.errors import ApiError
from outrider.machine.debug.bundle import BundleCollector
from tests.machine.agents.ide.desk import Desk, Ide
from tests.machine.agents.ide.kinds import CODE_SERVER, JUPYTERLAB, KINDS, STUB_MODELS
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import running_in, until
from tests.machine.agents.scenario import stays

pytestmark = [pytest.mark.ide, pytest.mark.timeout(300)]

EVERY = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.type) for kind in KINDS])
MODELS = {JUPYTERLAB.type: "sonnet", CODE_SERVER.type: STUB_MODELS[1]}
HIDES = {
    JUPYTERLAB.type: ".lm-TabBar-addButton",
    CODE_SERVER.type: '[aria-label^="Hide Secondary Side Bar"]',
}


def controls(ide: Ide) -> dict[str, object]:
    """Return the values of the settings that the chat shows."""
    return {control.id: control.value for control in ide.session.state().controls}


@EVERY
async def test_a_silent_model_a_hidden_chat_and_a_reload(box: Desk, kind: AgentKind) -> None:
    ide = await box.open()
    before = await ide.turn("hello")

    await ide.page.evaluate("setTimeout(() => location.reload(), 10)")
    await until(lambda: not ide.shown)
    await until(lambda: ide.shown)
    await ide.until("idle")
    assert (await ide.messages())[: len(before)] == before
    added = await ide.turn("after it")
    assert [message.content for message in added if message.role == "user"] == ["after it"]

    await ide.page.locator(HIDES[kind.type]).locator("visible=true").first.click()
    await until(lambda: not ide.shown)
    assert ide.status == "idle"
    assert (await ide.turn("into the dark"))[0].content == "into the dark"

    # whether VS Code has kept that its chat is shown by now, nobody knows
    await ide.page.evaluate("setTimeout(() => location.reload(), 10)")
    await until(lambda: not ide.shown)
    assert (await ide.turn("and again"))[0].content == "and again"

    await ide.say("HANG")
    await stays(ide, "generating", 5)


@EVERY
async def test_its_window_is_closed_and_then_its_browser_is_killed(box: Desk) -> None:
    ide = await box.open()
    before = await ide.turn("hello")
    other = await ide.page.context.new_page()
    await ide.page.close()
    await ide.until("error")
    assert "was closed" in (ide.session.state().error or "")
    with pytest.raises(ApiError) as hidden:
        await ide.session.screenshot(Screenshot())
    assert (hidden.value.status, "cannot be shown" in hidden.value.message) == (409, True)
    await other.close()

    ide.processes()[0].kill()
    await until(lambda: ide.ended is not None)
    assert "has ended" in ide.error
    assert await ide.messages() == before
    with pytest.raises(ApiError) as refused:
        await ide.say("anybody?")
    assert refused.value.status == 404
    home = box.folder / "home"
    await until(lambda: not running_in(home), why=lambda: str(running_in(home)))


@EVERY
async def test_its_page_crashes_and_is_loaded_again(box: Desk) -> None:
    ide = await box.open()
    before = await ide.turn("hello")
    session = await ide.page.context.new_cdp_session(ide.page)
    crashing = asyncio.ensure_future(session.send("Page.crash"))
    await ide.until("error")
    assert "has crashed" in (ide.session.state().error or "")
    with pytest.raises(ApiError) as refused:
        await ide.say("anybody?")
    assert refused.value.status == 500
    assert await ide.messages() == before
    crashing.cancel()
    await ide.load_again()
    await until(lambda: ide.evidence()["page"] == "there" and ide.shown)
    assert (await ide.turn("after it"))[0].content == "after it"
    assert (await ide.messages())[: len(before)] == before


@EVERY
async def test_settings_pictures_and_the_debug_bundle(box: Desk, kind: AgentKind) -> None:
    ide = await box.open()
    await ide.turn("begin")
    await until(lambda: {"model", "mode"} <= controls(ide).keys())
    state = ide.session.state()
    mode = next(control for control in state.controls if control.id == "mode")
    other = next(option for option in mode.options if option != mode.value)
    await ide.session.send(SendChat(controls={"mode": other}))
    assert controls(ide)["mode"] == other
    assert mode.value is not None
    await ide.session.send(SendChat(controls={"mode": mode.value}))
    unknowns: list[dict[str, str | bool]] = [{"mode": "never seen"}, {"temperature": "high"}]
    for unknown in unknowns:
        with pytest.raises(ApiError) as refused:
            await ide.session.send(SendChat(controls=unknown))
        assert refused.value.status == 400

    assert (await ide.session.screenshot(Screenshot(width=700))).width == 700
    bundle = (await BundleCollector(box.sessions).collect(ChatDebug(session_id=ide.id))).bundle
    assert bundle.problems == []
    assert bundle.screenshot is not None
    assert bundle.screenshot["format"] == "jpeg"
    assert 5_000 < len(bundle.screenshot["data"]) < 28_000


@EVERY
async def test_its_page_says_which_directory_is_open(box: Desk) -> None:
    ide = await box.open()
    assert await ide.script("window.__outrider.do('workspace')") == str(box.project)


@EVERY
async def test_the_model_of_a_launch_is_the_one_that_answers(box: Desk, kind: AgentKind) -> None:
    model = MODELS[kind.type]
    ide = await box.open(model=model)
    assert controls(ide)["model"] == model
    await ide.turn("hello")
    assert ide.session.describe().model == model
    await box.shut(ide)
    with pytest.raises(ApiError) as refused:
        await box.open(model="Never PanelReport")
    assert (refused.value.status, model in refused.value.message) == (400, True)
    assert not box.sessions.describe()


async def test_without_its_debugging_port_it_is_told_no_model(box: Desk) -> None:
    with pytest.raises(ApiError) as refused:
        await box.open(model="opus", cdp=False)
    assert (refused.value.status, "enableCdp" in refused.value.message) == (400, True)


async def test_only_the_server_is_told_the_token(box: Desk) -> None:
    ide = await box.open()
    browser, server = ide.processes()
    token = server.environ()["JUPYTER_TOKEN"]
    assert token not in " ".join([*browser.cmdline(), *server.cmdline()])
