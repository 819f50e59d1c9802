"""The page of a session: the message box, the card of a question, and its views."""

import base64
from typing import TYPE_CHECKING

import pytest

from outrider.contract.events import QueueEntry
from tests.dashboard.house import answer_all, desk, messages, question
from tests.dashboard.visitor import PHONE, signed_in
from tests.rig.machine import payload_of
from tests.rig.samples import ACCEPTED, CHANGES, CHAT, session
from tests.rig.site import Owner

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]


async def test_the_message_box(user: Owner, browser: "Browser") -> None:
    """Its keys and buttons; what is typed stays while the session changes."""
    from playwright.async_api import expect

    one = session(kind="acp", type="house-agent", title="First title")
    async with (
        desk(user, one, "send_chat", "interrupt") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path)
        message = page.get_by_role("textbox", name="Message", exact=True)
        send, queue, interrupt, at_once = (
            page.get_by_role("button", name=name, exact=True)
            for name in ("Send", "Queue", "Interrupt", "Interrupt and send")
        )
        await expect(send).to_be_visible()
        for button in (queue, interrupt, at_once):
            await expect(button).to_have_count(0)
        await message.fill("one")
        await message.press("Shift+Enter")
        await message.press_sequentially("two")
        await expect(message).to_have_value("one\ntwo")
        await message.press("Enter")
        command = await machine.takes("send_chat", message="one\ntwo")
        await expect(message).to_have_value("")
        await machine.reports(status="generating")
        await machine.machine.answers(command)
        for button in (queue, interrupt, at_once):
            await expect(button).to_be_visible()
        await expect(send).to_have_count(0)

        await message.fill("a draft")
        await machine.reports(title="Second title")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Second title")
        await expect(message).to_have_value("a draft")
        await interrupt.click()
        command = await machine.takes("interrupt")
        await expect(interrupt).to_be_disabled()
        await machine.reports(status="idle")
        await machine.machine.answers(command)
        await expect(interrupt).to_have_count(0)
        await expect(message).to_have_value("a draft")
        await page.reload()
        await expect(message).to_have_value("a draft")


async def test_a_message_that_is_taken_back_elsewhere_is_not_shown_as_being_sent(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    one = session(status="generating")
    async with (
        desk(user, one, "send_chat") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.clock.install()
        await page.goto(machine.path)
        message = page.get_by_role("textbox", name="Message", exact=True)
        await message.fill("another idea")
        await message.press("Enter")
        command = await machine.takes("send_chat")
        sending = page.get_by_text("Sending", exact=True)
        await expect(sending).to_be_visible()
        # The message would be forgotten after a while anyway.
        await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 1"))
        queued = QueueEntry(message_id="msg_own", text="another idea", created_at=1)
        await machine.reports_queue(queued)
        result = ACCEPTED | {"messageId": queued.message_id, "queued": True}
        await machine.machine.answers(command, result)
        waiting = page.get_by_role("list", name="Queued").get_by_role("listitem")
        take_back = page.get_by_role("button", name="Take back", exact=True)
        await _passes(page, until=waiting.filter(has_text="another idea").filter(has=take_back))
        await expect(sending).to_have_count(0)
        await machine.reports_queue()
        await _passes(page, until=page.get_by_text("another idea"), count=0)
        await expect(sending).to_have_count(0)


async def _passes(page: "Page", until: "Locator", count: int = 1) -> None:
    """Let the page's clock go on, which is stopped, until this is shown so often."""
    for _ in range(40):
        await page.clock.run_for(20)
        if await until.count() == count:
            return
    raise AssertionError(f"{until} is not there {count} times")


async def test_on_a_keyboard_on_the_screen_enter_is_a_new_line(
    user: Owner, browser: "Browser"
) -> None:
    """The button sends. Chromium shows no such keyboard here, so its height is pretended."""
    from playwright.async_api import expect

    async with (
        desk(user, session(kind="acp"), "send_chat") as machine,
        signed_in(browser, user, PHONE) as visitor,
    ):
        page = visitor.page
        await page.add_init_script(
            "Object.defineProperty(visualViewport, 'height', { get: () => innerHeight - 300 })"
        )
        await page.goto(machine.path)
        message = page.get_by_role("textbox", name="Message", exact=True)
        await expect(message).to_have_attribute("enterkeyhint", "enter")
        await message.press_sequentially("one")
        await message.press("Enter")
        await message.press_sequentially("two")
        await expect(message).to_have_value("one\ntwo")
        assert machine.kept.empty()
        await page.get_by_role("button", name="Send", exact=True).tap()
        await machine.takes("send_chat", message="one\ntwo")


async def test_the_card_of_a_question(user: Owner, browser: "Browser") -> None:
    """It stays, disabled, while an answer is under way, and goes when the question is resolved."""
    from playwright.async_api import expect

    one = session(
        status="waiting_approval",
        title="First",
        pending_action=question("Run `make`?", "Never again"),
    )
    async with (
        desk(user, one, "resolve_action") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path)
        buttons = [
            page.get_by_role("button", name=name, exact=True)
            for name in ("Approve", "Reject", "More")
        ]
        for button in buttons:
            await expect(button).to_be_enabled()
        # A question does not keep anybody from writing.
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_editable()
        await buttons[2].click()
        await expect(page.get_by_role("menuitem")).to_have_text(["Allow always", "Never again"])
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("menuitem")).to_have_count(0)
        await buttons[0].click()
        command = await machine.takes("resolve_action", action="approve", actionId="act_1")
        for button in buttons:
            await expect(button).to_be_disabled()
        await machine.reports(status="generating", pending_action=None)
        await machine.machine.answers(command)
        for button in buttons:
            await expect(button).to_have_count(0)
        assert machine.kept.empty()


@pytest.mark.parametrize("kind", ["cli", "acp"])
async def test_the_tabs(user: Owner, browser: "Browser", kind: str) -> None:
    """Only CLI agents have a terminal; arrow keys go from tab to tab."""
    from playwright.async_api import expect

    names = ["Chat", *(["Terminal"] if kind == "cli" else []), "Changes", "Files", "Debug"]
    async with (
        desk(user, session(kind=kind)) as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(f"{machine.path}?tab=changes")
        await expect(page.get_by_role("tab")).to_have_text(names)
        changes = page.get_by_role("tab", name="Changes", exact=True)
        await expect(page.get_by_role("tabpanel", name="Changes")).to_contain_text("main")
        await changes.focus()
        for key, name in (("ArrowRight", "Files"), ("ArrowRight", "Debug"), ("ArrowRight", "Chat")):
            await page.keyboard.press(key)
            tab = page.get_by_role("tab", name=name, exact=True)
            await expect(tab).to_be_focused()
            await expect(tab).to_have_attribute("aria-selected", "true")
            await expect(page.get_by_role("tabpanel", name=name, exact=True)).to_be_visible()


async def test_the_tab_of_the_terminal_is_opened_by_enter(user: Owner, browser: "Browser") -> None:
    """Arrow keys pass it: an open terminal takes the focus, and the next key is the agent's."""
    from playwright.async_api import expect

    async with (
        desk(user, session(kind="cli")) as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        chat, terminal, changes = (
            page.get_by_role("tab", name=name, exact=True)
            for name in ("Chat", "Terminal", "Changes")
        )
        await page.goto(machine.path)
        await chat.focus()
        await page.keyboard.press("ArrowRight")
        await expect(terminal).to_be_focused()
        await expect(chat).to_have_attribute("aria-selected", "true")
        await page.keyboard.press("ArrowRight")
        await expect(changes).to_be_focused()
        await expect(changes).to_have_attribute("aria-selected", "true")
        await page.keyboard.press("ArrowLeft")
        await expect(terminal).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(terminal).to_have_attribute("aria-selected", "true")
        await expect(page.get_by_role("tabpanel", name="Terminal", exact=True)).to_be_visible()


_PASTE = """async (element) => {
    const canvas = new OffscreenCanvas(600, 400);
    const context = canvas.getContext("2d");
    const noise = context.createImageData(600, 400);
    for (let i = 0; i < noise.data.length; i++) noise.data[i] = (i * i * 7919) % 251;
    context.putImageData(noise, 0, 0);
    const data = new DataTransfer();
    data.items.add(new File([await canvas.convertToBlob()], "picture.png", { type: "image/png" }));
    element.dispatchEvent(
        new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


async def test_pictures_are_pasted_into_a_message(user: Owner, browser: "Browser") -> None:
    """They are shown before they are sent, and go with a text for agents that take none."""
    from playwright.async_api import expect

    one = session(kind="acp", type="house-agent")
    async with (
        desk(user, one, "send_chat") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path)
        message = page.get_by_role("textbox", name="Message", exact=True)
        pictures = page.get_by_role("list", name="Pictures of the message").get_by_role("img")
        await message.fill("Look at this")
        for count in (1, 2):
            await message.evaluate(_PASTE)
            await expect(pictures).to_have_count(count)
        await page.get_by_role("button", name="Remove picture 1", exact=True).click()
        await expect(pictures).to_have_count(1)
        await message.press("Enter")
        command = await machine.takes("send_chat")
        await machine.machine.answers(command)
        sent = payload_of(command)["input"]
        text, picture = sent["parts"]
        assert text == {"type": "text", "text": "Look at this"}
        assert picture["type"] == "image"
        assert base64.b64decode(picture["data"])
        assert sent["textFallback"].startswith("Look at this\n\n[1 picture")
        await expect(pictures).to_have_count(0)
        await expect(message).to_have_value("")


async def test_a_terminal_agent_takes_no_pictures(user: Owner, browser: "Browser") -> None:
    from playwright.async_api import expect

    async with (
        desk(user, session(kind="cli", type="claude-code")) as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path)
        message = page.get_by_role("textbox", name="Message", exact=True)
        await message.fill("a draft")
        await message.evaluate(_PASTE)
        await expect(page.get_by_role("alert")).to_contain_text("takes no pictures")
        await expect(message).to_have_value("a draft")


async def test_what_was_read_from_a_screen_keeps_its_lines_and_columns(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    one = session()
    machine = await user.machine(one)
    screen = "# build\n  * a.py   1\n  * b.py  12"
    talk = messages(("assistant", "text", screen), ("assistant", "text", "# Heading"))
    talk[0]["source"] = "screen"
    answer_all(
        machine,
        one,
        read_chat=CHAT | {"messages": talk, "totalMessages": len(talk), "pendingAction": None},
    )
    async with signed_in(browser, user) as visitor:
        page = visitor.page
        await page.goto(f"/sessions/{machine.id}:session:{one.id}")
        chat = page.get_by_role("log", name="Chat")
        await expect(chat.get_by_role("heading")).to_have_text(["Heading"])
        shown = chat.locator("pre")
        assert await shown.inner_text() == screen
        await expect(shown).to_have_css("white-space", "pre-wrap")


async def test_all_changed_files_are_opened_and_closed_at_once(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    one = session()
    machine = await user.machine(one)
    file = {"oldPath": None, "status": "modified", "additions": 1, "deletions": 0, "binary": False}
    files = [file | {"path": f"{number}.py"} for number in range(20)]
    answer_all(machine, one, read_changes=CHANGES | {"files": files, "patch": ""})
    async with signed_in(browser, user) as visitor:
        page = visitor.page
        await page.goto(f"/sessions/{machine.id}:session:{one.id}?tab=changes")
        rows = page.get_by_role("list", name="Changes").get_by_role("button")
        opened = page.get_by_role("list", name="Changes").get_by_role("button", expanded=True)
        await expect(rows).to_have_count(20)
        await expect(opened).to_have_count(0)
        await page.get_by_role("button", name="Expand all").click()
        await expect(opened).to_have_count(20)
        await page.get_by_role("button", name="Collapse all").click()
        await expect(opened).to_have_count(0)
        await expect(page.get_by_role("button", name="Collapse all")).to_be_focused()
