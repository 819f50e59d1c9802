"""What the dashboard shows when something fails: the service, the session, the machine."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from playwright.async_api import Browser, Route, expect

from outrider.contract.frames import Failure
from outrider.contract.ids import new_id
from tests.conftest import StartSite
from tests.dashboard.accounts import disconnect, furnished_account, session_machine
from tests.dashboard.browser_client import BrowserClient, open_browser, signed_in, signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.people import (
    PAGE_SECRET,
    PASSWORD,
    dashboard,
    logged_in,
    page_of,
    person,
    sessions_of,
)
from tests.rig.samples import PROVIDER, session
from tests.rig.site import Owner
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = MARKS


async def test_a_session_that_is_over_and_the_draft(user: Owner, browser: Browser) -> None:
    """To the login, and from there back to the page; what was typed is kept."""
    account = await furnished_account(user)
    path = f"/sessions/{account.targets['idle']}"
    async with signed_in(browser, user) as browsing:
        page = browsing.page
        await page.goto(path)
        message = page.get_by_role("textbox", name="Message", exact=True)
        await message.fill("A long thought\nin two lines")
        ended = await (await dashboard(user)).delete("/api/v1/account/sessions")
        assert ended.status_code == 200, ended.text
        await expect(page).to_have_url(re.compile(r"/login\?next="))
        await browsing.type_login(user.email, PASSWORD)
        await expect(page).to_have_url(re.compile(re.escape(path.replace(":", "%3A")) + "|" + path))
        await expect(message).to_have_value("A long thought\nin two lines")


async def test_a_session_that_is_over_and_the_next_user(user: Owner, browser: Browser) -> None:
    """Nobody sees what the user of another account has typed in this tab."""
    other = await person(user.site)
    machine = await user.machine(session(), providers=[PROVIDER])
    await other.machine(session(), providers=[PROVIDER])
    async with signed_in(browser, user) as browsing:
        page = browsing.page
        await page.goto("/")
        dialog = page.get_by_role("dialog")
        directory = dialog.get_by_role("textbox", name="Directory", exact=True)
        await page.get_by_role("button", name="Launch", exact=True).click()
        await directory.fill("/srv/secret")
        await dialog.get_by_role("button", name="Launch", exact=True).click()
        command = await machine.takes("launch_cli", dir="/srv/secret")
        await machine.fails(command, Failure(status=409, message="It cannot be started"))
        await expect(dialog.get_by_role("alert")).to_contain_text("It cannot be started")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await page.get_by_role("link", name="Webhooks", exact=True).click()
        await page.get_by_role("button", name="New webhook", exact=True).click()
        await dialog.get_by_role("textbox", name="URL", exact=True).fill("https://example.org/key")
        await (await dashboard(user)).delete("/api/v1/account/sessions")
        await expect(page).to_have_url(re.compile(r"/login\?next="))

        await browsing.type_login(other.email, PASSWORD)
        await expect(page).to_have_url(re.compile("/webhooks$"))
        await expect(page.get_by_role("heading", name="No webhook yet")).to_be_visible()
        await expect(dialog).to_have_count(0)
        await page.get_by_role("link", name="Sessions", exact=True).click()
        await page.get_by_role("button", name="Launch", exact=True).click()
        await expect(directory).to_have_value("")


@pytest.mark.parametrize("already_there", [False, True])
async def test_a_login_link_is_used_and_leaves_the_address(
    user: Owner, browser: Browser, already_there: bool
) -> None:
    """Also in a tab that shows the login page: then only the fragment of its address changes."""
    async with open_browser(browser, user.site.url) as browsing:
        page = browsing.page
        if already_there:
            await page.goto("/login")
            await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        async with page.expect_request("**/api/v1/auth/link") as sent:
            await page.goto("/login#once=TOKEN")
        assert (await sent.value).post_data_json == {"token": "TOKEN"}
        # The service has issued no such link.
        await expect(page.get_by_role("alert")).to_be_visible()
        await expect(page).to_have_url(f"{user.site.url}/login")


async def test_a_log_out_that_fails(user: Owner, browser: Browser) -> None:
    """The page says why, and stays; where no session is left to end, it goes to the login."""
    async with signed_in(browser, user) as browsing:
        page = browsing.page
        log_out = page.get_by_role("button", name="Log out", exact=True)
        await page.goto("/account")
        rows = page.get_by_role("region", name="Audit").get_by_role("row")
        await expect(rows).not_to_have_count(0)
        await browsing.context.set_offline(True)
        await log_out.click()
        alert = page.get_by_role("alert").filter(has_text="The service cannot be reached")
        await expect(alert).to_be_visible()
        await browsing.context.set_offline(False)
        await log_out.click()
        await expect(page).to_have_url(re.compile("/login$"))

        await browsing.log_in(user.email, PASSWORD)
        await page.goto("/account")

        async def unauthorized(route: Route) -> None:
            await route.fulfill(status=401, json={})

        await page.route("**/api/v1/auth/logout", unauthorized)
        await log_out.click()
        await expect(page).to_have_url(re.compile("/login$"))


async def test_a_confirmation_stays_until_the_service_answers(
    user: Owner, browser: Browser
) -> None:
    """Escape does not hide why an action was refused."""
    async with (
        session_machine(user, session(title="First"), "stop_cli") as machine,
        signed_in_page(browser, user) as page,
    ):
        await page.goto(machine.path)
        await page.get_by_role("button", name="Stop", exact=True).click()
        dialog = page.get_by_role("alertdialog")
        await dialog.get_by_role("button", name="Stop", exact=True).click()
        command = await machine.takes("stop_cli")
        await page.keyboard.press("Escape")
        await expect(dialog.get_by_role("button", name="Cancel", exact=True)).to_be_disabled()
        await machine.machine.fails(command, Failure(status=409, message="It cannot be stopped"))
        await expect(dialog.get_by_role("alert")).to_contain_text("It cannot be stopped")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)


async def test_launching_without_a_machine_that_answers(user: Owner, browser: Browser) -> None:
    """The dialog says that every machine is offline, or why the machine could not be read."""
    machine = await user.machine(session(), enrolled=await user.enrolls(nickname="workbench"))
    async with signed_in_page(browser, user) as page:
        await page.goto("/")
        dialog = page.get_by_role("dialog", name="Launch", exact=True)
        launch = page.get_by_role("button", name="Launch", exact=True)

        async def refused(route: Route) -> None:
            await route.fulfill(status=403, json={"error": {"message": "Not you"}})

        await page.route("**/api/v1/daemons/*/status", refused)
        await launch.click()
        await expect(dialog.get_by_role("alert")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await disconnect(user, machine)
        await page.goto("/")
        await launch.click()
        await expect(dialog).to_contain_text("No machine is connected")


async def test_signed_in_sessions_that_cannot_be_read(user: Owner, browser: Browser) -> None:
    async with signed_in_page(browser, user) as page:

        async def broken(route: Route) -> None:
            await route.fulfill(status=500, json={})

        await page.route("**/api/v1/account/sessions", broken)
        await page.goto("/account")
        section = page.get_by_role("region", name="Signed-in sessions")
        await expect(section.get_by_role("alert")).to_be_visible()
        await expect(section.get_by_role("list")).to_have_count(0)


async def visits_with_an_old_login(browsing: BrowserClient, owner: Owner) -> None:
    """Give the browser a session whose password was typed an hour ago."""
    begun = await logged_in(owner, age=3600)
    token = sessions_of(owner.site).in_cookie(begun.token, PAGE_SECRET)
    await browsing.context.add_cookies(
        [{"name": "outrider_session", "value": token, "url": browsing.url, "sameSite": "Strict"}]
    )


async def test_an_action_that_needs_a_recent_login_asks_and_goes_on(
    user: Owner, browser: Browser
) -> None:
    async with open_browser(browser, user.site.url) as browsing:
        await visits_with_an_old_login(browsing, user)
        page = browsing.page
        await page.goto("/account")
        revoke = page.get_by_role("button", name="Revoke", exact=True)
        await revoke.click()
        await page.get_by_role("alertdialog").get_by_role("button", name="Revoke").click()
        prompt = page.get_by_role("dialog").filter(has=page.locator("input[type=password]"))
        field = prompt.locator("input[type=password]")
        await expect(field).to_have_count(1)
        await field.fill("not the password")
        await field.press("Enter")
        await expect(prompt.get_by_role("alert")).to_be_visible()
        await field.fill(PASSWORD)
        await field.press("Enter")
        await expect(prompt).to_have_count(0)
        await expect(page.get_by_role("alertdialog")).to_have_count(0)
        await expect(revoke).to_have_count(0)
        assert (await user.api.get("/api/v1/daemons")).status_code == 401


async def test_two_tabs_share_one_stream(user: Owner, browser: Browser) -> None:
    """When the tab that reads it is closed, the other one goes on, and misses nothing."""
    machine = await user.machine(session(title="First"))
    streams: list[str] = []
    async with open_browser(browser, user.site.url) as browsing:
        browsing.context.on(
            "request",
            lambda request: streams.append(request.url) if "/events?" in request.url else None,
        )
        await browsing.log_in(user.email, PASSWORD)
        first = browsing.page
        await first.goto("/")
        await expect(first.get_by_role("link", name="First", exact=True)).to_be_visible()
        await eventually(lambda: len(streams) == 1)
        second = await browsing.tab("/")
        await expect(second.get_by_role("link", name="First", exact=True)).to_be_visible()
        await expect(second.get_by_role("alert")).to_have_count(0)
        assert len(streams) == 1

        enrolled = await user.enrolls(nickname="another machine")
        await user.machine(session(title="Second"), enrolled=enrolled)
        for page in (first, second):
            await expect(page.get_by_role("link", name="Second", exact=True)).to_be_visible()
        await first.close()
        await eventually(lambda: len(streams) == 2)
        assert "after=" in streams[1]
        await user.machine(session(title="Third"), enrolled=await user.enrolls(nickname="third"))
        await expect(second.get_by_role("link", name="Third", exact=True)).to_be_visible()
        assert machine.is_open


@asynccontextmanager
async def at_the_limit(client: httpx.AsyncClient) -> AsyncIterator[None]:
    """Take every request that the rate limit of a session allows, until the end."""
    limited = asyncio.Event()

    async def ask() -> None:
        while True:
            if (await client.get("/api/v1/account")).status_code == 429:
                limited.set()

    asking = asyncio.create_task(ask(), name="requests")
    try:
        async with asyncio.timeout(TIMEOUT):
            await limited.wait()
        yield
    finally:
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


async def test_a_script_that_is_gone_after_an_upgrade(user: Owner, browser: Browser) -> None:
    """The page says so, and its button loads the new one."""
    async with (
        session_machine(user, session(title="First")) as machine,
        signed_in(browser, user) as browsing,
    ):
        page = browsing.page
        await page.goto(machine.path)
        await expect(page.get_by_role("log", name="Chat")).to_contain_text("Two failures")

        async def missing(route: Route) -> None:
            await route.fulfill(status=404)

        await page.route("**/assets/changes-*.js", missing)
        await page.get_by_role("tab", name="Changes", exact=True).click()
        await expect(page.get_by_role("heading", name="This page failed")).to_be_visible()
        await page.unroute("**/assets/changes-*.js")
        await page.get_by_role("button", name="Load again", exact=True).click()
        await expect(page.get_by_role("tabpanel", name="Changes")).to_contain_text("a.py")
        assert all("dynamically imported module" in fault for fault in browsing.faults)
        browsing.faults.clear()


async def test_too_many_requests(start_site: StartSite, browser: Browser, built: None) -> None:
    """429: the page says so, and the message is not lost."""
    site = await start_site(rate_limit_session=60)
    owner = await person(site)
    account = await furnished_account(owner)
    async with signed_in(browser, owner) as browsing:
        page = browsing.page
        await page.goto(f"/sessions/{account.targets['idle']}")
        message = page.get_by_role("textbox", name="Message", exact=True)
        await expect(page.get_by_role("log", name="Chat")).to_contain_text("Two failures")
        client = site.client()
        client.headers.update(page_of((await browsing.context.cookies())[0]["value"]))
        async with at_the_limit(client):
            await message.fill("One too many")
            await message.press("Enter")
            alert = page.get_by_role("alert").filter(has_text="Too many requests")
            await expect(alert).to_be_visible()
            await expect(page.get_by_role("list", name="Queued")).to_contain_text("One too many")


async def test_many_machines(user: Owner, browser: Browser) -> None:
    """The figures of the first 50 are read: the rate limit would not allow those of thousands."""
    await user.machine(enrolled=await user.enrolls())
    read: set[str] = set()
    async with signed_in_page(browser, user) as page:

        async def many(route: object) -> None:
            response = await route.fetch()  # type: ignore[attr-defined]
            body = await response.json()
            names = [f"machine-{number}" for number in range(60)]
            machine = body["daemons"][0]
            body["daemons"] = [machine | {"id": name, "nickname": name} for name in names]
            await route.fulfill(response=response, json=body)  # type: ignore[attr-defined]

        await page.route("**/api/v1/daemons?**", many)
        status = re.compile(r"/daemons/(machine-\d+)/status")
        page.on("request", lambda request: read.update(status.findall(request.url)))
        await page.goto("/machines")
        rows = page.get_by_role("list", name="Machines", exact=True).get_by_role("listitem")
        await expect(rows).to_have_count(60)
        await expect(page.get_by_text("The figures of the first 50")).to_be_visible()
        await eventually(lambda: len(read) == 50)
        await page.get_by_label("Filter machines").fill("machine-59")
        await expect(rows).to_have_count(1)
        await eventually(lambda: "machine-59" in read)
        assert len(read) == 51


async def test_a_field_and_a_state_of_a_newer_service(user: Owner, browser: Browser) -> None:
    """Unknown fields are ignored; an unknown session is a page that says so."""
    await furnished_account(user)
    async with signed_in_page(browser, user) as page:

        async def newer(route: object) -> None:
            response = await route.fetch()  # type: ignore[attr-defined]
            body = await response.json()
            for listed in body.get("sessions", []):
                listed |= {"status": "dreaming", "mood": {"calm": True}, "pendingAction": None}
            await route.fulfill(response=response, json=body | {"future": [1]})  # type: ignore[attr-defined]

        await page.route("**/api/v1/sessions?**", newer)
        await page.goto("/")
        rows = page.get_by_role("list", name="Running sessions").get_by_role("listitem")
        await expect(rows.get_by_role("status")).to_have_text(["dreaming"] * 4)
        await page.goto(f"/sessions/{new_id('machine')}:session:{new_id('session')}")
        await expect(page.get_by_role("heading", name="There is no such session")).to_be_visible()
