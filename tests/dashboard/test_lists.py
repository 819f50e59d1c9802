"""The pages outside of a session: where a person is, and what they come back to."""

from typing import TYPE_CHECKING

import pytest

from tests.dashboard.house import furnished
from tests.dashboard.visitor import PHONE, signed_in
from tests.rig.site import Owner

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
