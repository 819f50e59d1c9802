"""The pages outside of a session: where a person is, and what they come back to."""

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.house import furnished
from tests.dashboard.visitor import PHONE, signed_in, visiting
from tests.rig.people import PASSWORD, person
from tests.rig.samples import session
from tests.rig.site import Owner, Site

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]

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
