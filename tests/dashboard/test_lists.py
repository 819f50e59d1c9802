"""The pages outside of a session: where a person is, and what they come back to."""

import re
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tests.dashboard.house import answer_all, disconnect, furnished
from tests.dashboard.visitor import PHONE, WIDTHS, signed_in, visiting
from tests.rig.people import PASSWORD, person
from tests.rig.samples import MACHINE, session
from tests.rig.site import Owner, Site

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]

SCROLLED = "document.querySelector('[data-page]').scrollTop"
COLOUR = "element => getComputedStyle(element).color"


async def test_on_a_phone_the_tab_of_the_page_has_a_colour_of_its_own(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    await furnished(user)
    async with signed_in(browser, user, PHONE) as visitor:
        page = visitor.page
        await page.goto("/inbox")
        tabs = page.get_by_role("navigation", name="Main").get_by_role("link")
        await expect(tabs).to_have_count(3)
        sessions, inbox, machines = [await tab.evaluate(COLOUR) for tab in await tabs.all()]
        assert inbox != sessions == machines


async def test_a_tab_of_an_earlier_user_shows_what_the_present_one_may_see(
    site: Site, browser: "Browser", built: None
) -> None:
    """The browser has one login for all tabs: the second one replaces the first."""
    from playwright.async_api import expect

    async with site.visit(), visiting(browser, site.url) as visitor:
        first, second = await person(site), await person(site)
        await first.machine(session(title="Of the first"))
        await visitor.log_in(first.email, PASSWORD)
        page = visitor.page
        await page.goto("/")
        await expect(page.get_by_role("link", name="Of the first")).to_be_visible()
        await visitor.log_in(second.email, PASSWORD)
        other = await visitor.tab("/")
        for tab in (other, page):
            await expect(tab.get_by_role("heading", name="No machine is connected")).to_be_visible()
            await expect(tab.get_by_role("link", name="Of the first")).to_have_count(0)
        await first.machine(session(title="Later, of the first"))
        await second.machine(session(title="Of the second"))
        for tab in (other, page):
            await expect(tab.get_by_role("link", name="Of the second")).to_be_visible()
            await expect(tab.get_by_role("link", name="Later")).to_have_count(0)


async def test_back_from_a_session_is_where_the_list_was_left(
    user: Owner, browser: "Browser"
) -> None:
    """By the browser's button, and by the page's own."""
    from playwright.async_api import expect

    sessions = [session(title=f"Chat {number}", status="idle") for number in range(60)]
    machine = await user.machine(*sessions)
    answer_all(machine, sessions[40])
    async with signed_in(browser, user) as visitor:
        page = visitor.page
        await page.goto("/")
        await page.get_by_role("combobox", name="Status", exact=True).select_option("idle")
        await page.get_by_role("searchbox").fill("chat")
        await expect(page).to_have_url(re.compile(r"/\?status=idle&q=chat$"))
        link = page.get_by_role("link", name="Chat 40", exact=True)
        for way in ("browser", "page"):
            await link.focus()
            top = await page.evaluate(SCROLLED)
            assert top > 0
            await page.keyboard.press("Enter")
            heading = page.get_by_role("heading", level=1)
            await expect(heading).to_have_text("Chat 40")
            sidebar = page.get_by_role("navigation").get_by_role("link", name="Sessions")
            await expect(sidebar).to_have_attribute("aria-current", "true")
            if way == "browser":
                await page.go_back()
            else:
                await page.get_by_role("main").get_by_role("link", name="Sessions").click()
            await expect(heading).to_have_text("Sessions")
            await expect(link).to_be_focused()
            assert await page.evaluate(SCROLLED) == top
            await expect(page.get_by_role("searchbox")).to_have_value("chat")
            await expect(page.get_by_role("combobox", name="Status")).to_have_value("idle")
        await page.reload()
        await expect(page.get_by_role("searchbox")).to_have_value("chat")


@pytest.mark.parametrize("width", [768, 900, 1023])
async def test_a_title_is_the_last_to_be_cut(user: Owner, browser: "Browser", width: int) -> None:
    from playwright.async_api import expect

    error = "The model is overloaded, and says so at some length in one sentence"
    one = session(title="Update the lock file", status="error", error=error)
    await user.machine(one, enrolled=await user.enrolls(nickname="a machine with a long name"))
    async with signed_in(browser, user, width) as visitor:
        page = visitor.page
        await page.goto("/")
        link = page.get_by_role("link", name="Update the lock file")
        await expect(link).to_be_visible()
        assert await link.evaluate("link => link.scrollWidth <= link.clientWidth")
        await visitor.assert_layout_holds()


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_load_of_a_machine_is_shown_for_its_processors_while_it_is_online(
    user: Owner, browser: "Browser", width: int
) -> None:
    from playwright.async_api import expect

    busy = replace(MACHINE, cpus=2, loadavg=[7.5, 3.0, 1.0])
    await user.machine(machine=busy, enrolled=await user.enrolls(nickname="busy"))
    gone = await user.machine(machine=busy, enrolled=await user.enrolls(nickname="gone"))
    await disconnect(user, gone)
    async with signed_in(browser, user, width) as visitor:
        page = visitor.page
        await page.goto("/machines")
        rows = page.get_by_role("list", name="Machines").get_by_role("listitem")
        load = (
            rows.filter(has_text="busy").get_by_text("7.50 of 2 overloaded").locator("visible=true")
        )
        await expect(load).to_have_count(1)
        await expect(rows.filter(has_text="gone")).to_contain_text("Last seen")
        await expect(rows.filter(has_text="gone")).not_to_contain_text("Load")
        await visitor.assert_layout_holds()
