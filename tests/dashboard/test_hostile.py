"""Hostile texts of machines and agents on every page: nothing runs, nothing loads, all fits."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.dashboard.accounts import answer_all, hostile_account
from tests.dashboard.browser_client import PHONE, BrowserClient, signed_in
from tests.dashboard.conftest import MARKS
from tests.dashboard.hostile import LINES, TEXTS, packed
from tests.rig.samples import CHANGES, session
from tests.rig.site import Owner

pytestmark = MARKS

# What a text must not have become: elements that load, run, submit or lead somewhere.
_INJECTED = """() => {
    const found = [...document.querySelectorAll(
        'iframe, object, embed, form[action], meta[http-equiv], video, audio, main img, ' +
        'main style, main link, main script, main svg a, [onerror], [onload], [ontoggle]')];
    const links = [...document.querySelectorAll("a")].filter(
        (a) => !["http:", "https:", "mailto:"].includes(a.protocol) || /logout/.test(a.pathname));
    const bases = [...document.querySelectorAll("base")].slice(1);
    const polluted = "polluted" in {} ? ["Object.prototype is polluted"] : [];
    const html = [...found, ...links, ...bases].map((element) => element.outerHTML.slice(0, 200));
    return [...html, ...polluted];
}"""


async def assert_harmless(browsing: BrowserClient, page: Page) -> None:
    """Check that no text has become anything but text, and that all of it fits."""
    found: Any = await page.evaluate(_INJECTED)
    assert found == []
    await browsing.assert_layout_holds()
    assert browsing.faults == [], browsing.faults


async def test_hostile_texts_of_machines_and_agents(user: Owner, browser: Browser) -> None:
    await hostile_account(user, LINES, TEXTS)
    async with signed_in(browser, user, PHONE) as browsing:
        page = browsing.page
        await page.goto("/")
        rows = page.get_by_role("list", name="Running sessions").get_by_role("listitem")
        await expect(rows).to_have_count(len(LINES))
        await assert_harmless(browsing, page)
        for row in await rows.all():
            name = await row.get_by_role("link").get_attribute("aria-label")
            shown = name or await row.get_by_role("link").inner_text()
            assert shown.strip(), "a session whose title is blank has no name"

        await page.goto("/inbox")
        await expect(page.get_by_role("button", name="Approve")).to_have_count(len(LINES))
        await assert_harmless(browsing, page)
        await page.get_by_role("button", name="More", exact=True).first.click()
        await expect(page.get_by_role("menuitem").first).to_be_visible()
        await assert_harmless(browsing, page)

        await page.goto("/machines")
        machines = page.get_by_role("list", name="Machines").get_by_role("listitem")
        await expect(machines).to_have_count(len(LINES))
        await assert_harmless(browsing, page)


async def test_hostile_texts_on_the_pages_of_each_machine_and_session(
    user: Owner, browser: Browser
) -> None:
    account = await hostile_account(user, packed(LINES, 200), TEXTS)
    async with signed_in(browser, user, PHONE) as browsing:
        page = browsing.page
        for machine, target in zip(account.machines, account.targets.values(), strict=True):
            await page.goto(f"/machines/{machine.id}")
            await expect(page.get_by_role("heading", name="Terminals")).to_be_visible()
            await assert_harmless(browsing, page)
            await page.goto(f"/sessions/{target}")
            await expect(page.get_by_role("log", name="Chat")).to_be_attached()
            await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
            await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
            await assert_harmless(browsing, page)


async def test_hostile_texts_of_webhooks_devices_and_ended_sessions(
    user: Owner, browser: Browser
) -> None:
    account = await hostile_account(user, LINES, TEXTS)
    async with signed_in(browser, user, PHONE) as browsing:
        page = browsing.page
        await page.goto("/history")
        rows = page.get_by_role("list", name="Ended sessions").get_by_role("listitem")
        await expect(rows).to_have_count(len(LINES))
        await assert_harmless(browsing, page)
        await page.goto(f"/webhooks/{account.webhook}")
        await page.get_by_role("button", name="Details").click()
        response = page.get_by_role("region", name="Response")
        await expect(response).to_contain_text("<script>alert(1)</script>")
        await assert_harmless(browsing, page)
        await page.goto(f"/device?code={account.device}")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        await assert_harmless(browsing, page)


async def test_hostile_texts_in_a_chat_from_its_end_to_its_beginning(
    user: Owner, browser: Browser
) -> None:
    """Each message, tool call and result, folded and unfolded."""
    account = await hostile_account(user, LINES[:1], TEXTS)
    async with signed_in(browser, user, PHONE) as browsing:
        page = browsing.page
        await page.goto(f"/sessions/{next(iter(account.targets.values()))}")
        chat = page.get_by_role("log", name="Chat")
        await expect(chat).not_to_be_empty()
        await _see_all(browsing, chat)
        earlier = page.get_by_role("button", name=re.compile("earlier message"))
        if await earlier.count():
            await earlier.click()
            await expect(earlier).to_have_count(0)
        await _see_all(browsing, chat)


async def _see_all(browsing: BrowserClient, chat: Any) -> None:
    """Scroll from the end to the beginning, and open what is folded."""
    await chat.evaluate("element => { element.scrollTop = element.scrollHeight }")
    while True:
        # All at once: the list may take a row away between two calls.
        await chat.evaluate(
            """async (element) => {
                element.querySelectorAll("[aria-expanded=false]").forEach((fold) => fold.click());
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
            }"""
        )
        await assert_harmless(browsing, browsing.page)
        moved: float = await chat.evaluate(
            """async (element) => {
                const before = element.scrollTop;
                element.scrollTop -= element.clientHeight;
                await new Promise(requestAnimationFrame);
                await new Promise(requestAnimationFrame);
                return before - element.scrollTop;
            }"""
        )
        if moved <= 0:
            return


@pytest.mark.parametrize("tab", ["changes", "files", "debug"])
async def test_hostile_texts_in_the_other_views_of_a_session(
    user: Owner, browser: Browser, tab: str
) -> None:
    account = await hostile_account(user, LINES[:1], TEXTS)
    async with signed_in(browser, user, PHONE) as browsing:
        await browsing.page.goto(f"/sessions/{next(iter(account.targets.values()))}?tab={tab}")
        panel = browsing.page.get_by_role("tabpanel", name=tab.title())
        await expect(panel).not_to_be_empty()
        await assert_harmless(browsing, browsing.page)


async def test_the_name_of_a_branch_shows_what_is_invisible(user: Owner, browser: Browser) -> None:
    """An agent chooses it, and git allows marks that change the direction of text."""
    agent = session()
    machine = await user.machine(agent)
    answer_all(machine, agent, read_changes=CHANGES | {"branch": "fix-\u202eniam"})
    async with signed_in(browser, user) as browsing:
        await browsing.page.goto(f"/sessions/{machine.id}:session:{agent.id}?tab=changes")
        panel = browsing.page.get_by_role("tabpanel", name="Changes")
        await expect(panel).to_contain_text("fix-⟨U+202E⟩niam")
