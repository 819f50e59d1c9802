"""Each page: its accessible names, axe's rules, and a layout that holds."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from outrider.contract.ids import new_id
from tests.dashboard.accounts import furnished_account
from tests.dashboard.browser_client import (
    SCHEMES,
    WIDTHS,
    BrowserClient,
    Scheme,
    open_browser,
    signed_in,
    signed_in_page,
)
from tests.dashboard.conftest import MARKS, ROOT
from tests.dashboard.names import LOGGED_OUT, ROUTES, Name, address
from tests.rig.people import PASSWORD
from tests.rig.site import Owner

pytestmark = MARKS

CACHE = ROOT / ".cache"
# Agents choose the levels of the headings in their messages.
RUN_AXE = """async () => {
    const { violations } = await axe.run({ resultTypes: ["violations"] });
    const own = (id, target) =>
        id !== "heading-order" || !document.querySelector(target).closest("[role=log]");
    return violations.flatMap(({ id, nodes }) =>
        nodes.filter(({ target }) => own(id, target[0])).map(
            ({ html, failureSummary }) => `${id}: ${html}\\n${failureSummary}`));
}"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which is installed if need be."""
    subprocess.run(["sh", Path(__file__).parent / "axe" / "install.sh", CACHE], check=True)
    return (CACHE / "axe" / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def assert_accessible(page: Page, axe: str) -> None:
    """Check the page as it is with axe."""
    await page.evaluate(axe)
    found: Any = await page.evaluate(RUN_AXE)
    assert found == [], "\n\n".join(found)


async def _looks_right(browsing: BrowserClient, path: str, names: list[Name], axe: str) -> None:
    page = browsing.page
    await page.goto(path)
    for role, name in names:
        element: Any = role
        await expect(page.get_by_role(element, name=name, exact=True).first).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_have_count(1)
    await assert_accessible(page, axe)
    await browsing.assert_layout_holds()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
async def test_each_page(
    user: Owner, browser: Browser, axe: str, width: int, scheme: Scheme
) -> None:
    account = await furnished_account(user)
    async with open_browser(browser, user.site.url, width, scheme) as browsing:
        for path, names in LOGGED_OUT.items():
            await _looks_right(browsing, path, names, axe)
        await browsing.log_in(user.email, PASSWORD)
        for route, names in ROUTES.items():
            await _looks_right(browsing, address(route, account), names, axe)


async def test_each_route_of_the_dashboard_is_among_them() -> None:
    router = (ROOT / "web" / "src" / "app" / "router.tsx").read_text()
    patterns = [re.sub(r"\$\w*", "[^/?]+", path) for path in re.findall(r'path: "([^"]+)"', router)]
    assert patterns
    tested = {*LOGGED_OUT, *ROUTES}
    assert [
        pattern for pattern in patterns if not any(re.fullmatch(pattern, path) for path in tested)
    ] == []


async def test_an_account_without_anything(user: Owner, browser: Browser, axe: str) -> None:
    """Every empty state says what to do, and can be read by everybody."""
    async with signed_in(browser, user) as browsing:
        for path, name in (
            ("/", Name("heading", "No machine is connected")),
            ("/inbox", Name("heading", "Nothing waits for you")),
            ("/machines", Name("button", "Connect a machine")),
            ("/history", Name("heading", "No session has ended yet")),
            ("/webhooks", Name("button", "New webhook")),
            (f"/machines/{new_id('machine')}", Name("link", "Machines")),
            (f"/webhooks/{new_id('webhook')}", Name("link", "Webhooks")),
        ):
            await _looks_right(browsing, path, [name], axe)


async def test_each_row_has_one_status_with_the_words_of_the_api(
    user: Owner, browser: Browser
) -> None:
    """The most urgent first; a machine that is offline stays listed."""
    await furnished_account(user)
    async with signed_in_page(browser, user) as page:
        await page.goto("/")
        rows = page.get_by_role("list", name="Running sessions").get_by_role("listitem")
        await expect(rows.get_by_role("status")).to_have_text(
            ["waiting_approval", "generating", "error", "idle"]
        )
        await expect(rows.get_by_role("link")).to_have_text(
            ["Fix the build", "Write the changelog", "Update the lock file", "house-agent"]
        )
        ages = rows.locator("time")
        await expect(ages).to_have_count(4)
        for age in await ages.all():
            await expect(age).to_have_attribute("title", re.compile(r"2023.*:"))
        await page.goto("/machines")
        rows = page.get_by_role("list", name="Machines").get_by_role("listitem")
        for name, word in (("workbench", "online"), ("old laptop", "offline")):
            row = rows.filter(has=page.get_by_role("link", name=name, exact=True))
            await expect(row.get_by_role("status")).to_have_text(word)


async def test_the_filters_of_the_sessions(user: Owner, browser: Browser) -> None:
    """By title, type, directory and machine; by status, with the API's words."""
    await furnished_account(user)
    async with signed_in_page(browser, user) as page:
        await page.goto("/")
        links = page.get_by_role("list", name="Running sessions").get_by_role("link")
        await expect(links).to_have_count(4)
        box = page.get_by_role("searchbox")
        for text, count in (("changelog", 1), ("HOUSE-agent", 1), ("/srv", 4), ("workbench", 4)):
            await box.fill(text)
            await expect(links).to_have_count(count)
        await box.fill("nothing like it")
        await expect(page.get_by_role("heading", name="No session matches")).to_be_visible()
        await page.get_by_role("button", name="Clear the filters").click()
        status = page.get_by_role("combobox", name="Status", exact=True)
        for word in ("waiting_approval", "generating", "error", "idle"):
            await status.select_option(word)
            await expect(links).to_have_count(1)
