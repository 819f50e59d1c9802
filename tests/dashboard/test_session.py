"""The page of a session: the message box, the card of a question, and its views."""

import base64
import re

import pytest
from playwright.async_api import Browser, expect

from tests.dashboard.accounts import answer_all, session_machine
from tests.dashboard.browser_client import PHONE, signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.machine import payload_of
from tests.rig.samples import CHANGES, session
from tests.rig.site import Owner

pytestmark = MARKS


async def test_on_a_keyboard_on_the_screen_enter_is_a_new_line(
    user: Owner, browser: Browser
) -> None:
    """The button sends. Chromium shows no such keyboard here, so its height is pretended."""
    async with (
        session_machine(user, session(kind="acp"), "send_chat") as machine,
        signed_in_page(browser, user, PHONE) as page,
    ):
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
        assert machine.unanswered.empty()
        await page.get_by_role("button", name="Send", exact=True).tap()
        await machine.takes("send_chat", message="one\ntwo")


@pytest.mark.parametrize("kind", ["cli", "acp"])
async def test_the_tabs(user: Owner, browser: Browser, kind: str) -> None:
    """Only CLI agents have a terminal; arrow keys go from tab to tab."""
    names = ["Chat", *(["Terminal"] if kind == "cli" else []), "Changes", "Files", "Debug"]
    async with (
        session_machine(user, session(kind=kind)) as machine,
        signed_in_page(browser, user) as page,
    ):
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


async def test_the_tab_of_the_terminal_is_opened_by_enter(user: Owner, browser: Browser) -> None:
    """Arrow keys pass it: an open terminal takes the focus, and the next key is the agent's."""
    async with (
        session_machine(user, session(kind="cli")) as machine,
        signed_in_page(browser, user) as page,
    ):
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


async def test_pictures_are_pasted_into_a_message(user: Owner, browser: Browser) -> None:
    """They are shown before they are sent, and go with a text for agents that take none."""
    agent = session(kind="acp", type="house-agent")
    async with (
        session_machine(user, agent, "send_chat") as machine,
        signed_in_page(browser, user) as page,
    ):
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


async def test_the_address_keeps_what_is_compared_and_the_file_that_was_opened(
    user: Owner, browser: Browser
) -> None:
    agent = session()
    machine = await user.machine(agent)
    file = {"oldPath": None, "status": "modified", "additions": 1, "deletions": 0, "binary": False}
    files = [file | {"path": f"{number}.py"} for number in range(20)]
    answer_all(machine, agent, read_changes=CHANGES | {"files": files, "patch": ""})
    async with signed_in_page(browser, user) as page:
        await page.goto(f"/sessions/{machine.id}:session:{agent.id}?tab=changes&base=main")
        rows = page.get_by_role("list", name="Changes").get_by_role("button")
        opened = page.get_by_role("list", name="Changes").get_by_role("button", expanded=True)
        await expect(rows).to_have_count(20)
        await expect(opened).to_have_count(0)
        await rows.filter(has_text="17.py").click()
        await expect(page).to_have_url(re.compile(r"\?tab=changes&base=main&file=17.py$"))
        for leave in ("reload", "back"):
            if leave == "reload":
                await page.reload()
            else:
                await page.get_by_role("link", name="Inbox").click()
                await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
                await page.go_back()
            await expect(page.get_by_label("Compare with")).to_have_value("main")
            await expect(opened).to_contain_text("17.py")
            await expect(opened).to_be_in_viewport()

        await page.get_by_role("button", name="Expand all").click()
        await expect(opened).to_have_count(20)
        await page.get_by_role("button", name="Collapse all").click()
        await expect(opened).to_have_count(0)
        await expect(page.get_by_role("button", name="Collapse all")).to_be_focused()
