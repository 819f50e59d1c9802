"""The pages outside of a session: where a person is, and what they come back to."""

import re

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, expect

from outrider.contract.errors import ErrorCode
from outrider.contract.frames import Failure
from outrider.contract.resources import Workspace, Worktree
from tests.dashboard.accounts import answer_all, disconnect, furnished_account, session_machine
from tests.dashboard.browser_client import PHONE, WIDTHS, open_browser, signed_in, signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.machine import payload_of
from tests.rig.people import PASSWORD, person
from tests.rig.samples import LAUNCHED, MACHINE, session
from tests.rig.site import Owner, Site
from tests.service.machines.test_session_history import STOPPED, ends

pytestmark = MARKS

SCROLLED = "document.querySelector('[data-page]').scrollTop"
COLOUR = "element => getComputedStyle(element).color"


async def test_on_a_phone_the_tab_of_the_page_has_a_colour_of_its_own(
    user: Owner, browser: Browser
) -> None:
    await furnished_account(user)
    async with signed_in_page(browser, user, PHONE) as page:
        await page.goto("/inbox")
        tabs = page.get_by_role("navigation", name="Main").get_by_role("link")
        await expect(tabs).to_have_count(3)
        sessions, inbox, machines = [await tab.evaluate(COLOUR) for tab in await tabs.all()]
        assert inbox != sessions == machines


async def test_a_tab_of_an_earlier_user_shows_what_the_present_one_may_see(
    site: Site, browser: Browser, built: None
) -> None:
    """The browser has one login for all tabs: the second one replaces the first."""
    async with site.visit(), open_browser(browser, site.url) as browsing:
        first, second = await person(site), await person(site)
        await first.machine(session(title="Of the first"))
        await browsing.log_in(first.email, PASSWORD)
        page = browsing.page
        await page.goto("/")
        await expect(page.get_by_role("link", name="Of the first")).to_be_visible()
        await browsing.log_in(second.email, PASSWORD)
        other = await browsing.tab("/")
        for tab in (other, page):
            await expect(tab.get_by_role("heading", name="No machine is connected")).to_be_visible()
            await expect(tab.get_by_role("link", name="Of the first")).to_have_count(0)
        await first.machine(session(title="Later, of the first"))
        await second.machine(session(title="Of the second"))
        for tab in (other, page):
            await expect(tab.get_by_role("link", name="Of the second")).to_be_visible()
            await expect(tab.get_by_role("link", name="Later")).to_have_count(0)


async def test_back_from_a_session_is_where_the_list_was_left(
    user: Owner, browser: Browser
) -> None:
    """By the browser's button, and by the page's own."""
    sessions = [session(title=f"Chat {number}", status="idle") for number in range(60)]
    machine = await user.machine(*sessions)
    answer_all(machine, sessions[40])
    async with signed_in_page(browser, user) as page:
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
async def test_a_title_is_the_last_to_be_cut(user: Owner, browser: Browser, width: int) -> None:
    error = "The model is overloaded, and says so at some length in one sentence"
    agent = session(title="Update the lock file", status="error", error=error)
    await user.machine(agent, enrolled=await user.enrolls(nickname="a machine with a long name"))
    async with signed_in(browser, user, width) as browsing:
        page = browsing.page
        await page.goto("/")
        link = page.get_by_role("link", name="Update the lock file")
        await expect(link).to_be_visible()
        assert await link.evaluate("link => link.scrollWidth <= link.clientWidth")
        await browsing.assert_layout_holds()


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_load_of_a_machine_is_shown_for_its_processors_while_it_is_online(
    user: Owner, browser: Browser, width: int
) -> None:
    busy = replace(MACHINE, cpus=2, loadavg=[7.5, 3.0, 1.0])
    await user.machine(machine=busy, enrolled=await user.enrolls(nickname="busy"))
    gone = await user.machine(machine=busy, enrolled=await user.enrolls(nickname="gone"))
    await disconnect(user, gone)
    async with signed_in(browser, user, width) as browsing:
        page = browsing.page
        await page.goto("/machines")
        rows = page.get_by_role("list", name="Machines").get_by_role("listitem")
        load = rows.filter(has_text="busy").get_by_text("7.50 for 2 processors, overloaded")
        await expect(load.locator("visible=true")).to_have_count(1)
        await expect(rows.filter(has_text="gone")).to_contain_text("Last seen")
        await expect(rows.filter(has_text="gone")).not_to_contain_text("Load")
        await browsing.assert_layout_holds()


async def test_a_launch_in_a_worktree_by_keyboard_ends_in_the_message_box(
    user: Owner, browser: Browser
) -> None:
    """The directory has the focus first; a directory in which an agent worked can be chosen."""
    in_tree = Workspace(path="/srv/billing.worktrees/old", name="old")
    tree = Worktree(branch="old", path=in_tree.path, created=True)
    agent = session(title="Earlier", workspace=in_tree, worktree=tree)
    machine = await user.machine(agent)
    async with signed_in_page(browser, user) as page:
        await page.goto("/")
        await page.get_by_role("button", name="Launch", exact=True).press("Enter")
        dialog = page.get_by_role("dialog", name="Launch", exact=True)
        directory = dialog.get_by_role("textbox", name="Directory", exact=True)
        await expect(directory).to_be_focused()
        await dialog.get_by_role("group", name="Recent").get_by_role("button").press("Enter")
        await expect(directory).to_have_value("/srv/billing")
        await dialog.get_by_role("checkbox", name="In a git worktree of its own").press("Space")
        await expect(dialog.get_by_role("textbox", name="Branch")).to_be_focused()
        await page.keyboard.type("topic")
        await dialog.get_by_role("textbox", name="Base").fill("main")
        await dialog.get_by_role("textbox", name="Model").fill("opus")
        await page.keyboard.press("Enter")
        command = await machine.takes("launch_in_worktree", dir="/srv/billing", model="opus")
        assert payload_of(command)["worktree"] == {"branch": "topic", "base": "main"}
        answer_all(machine, agent)
        target = f"{machine.id}:session:{agent.id}"
        await machine.answers(command, LAUNCHED | {"sessionTargetId": target})
        await expect(page.get_by_role("heading", level=1)).to_have_text("Earlier")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()


async def test_stop_offers_to_remove_the_worktree(user: Owner, browser: Browser) -> None:
    place = Workspace(path="/srv/billing.worktrees/topic", name="topic")
    tree = Worktree(branch="topic", path=place.path, created=True)
    agent = session(title="In a worktree", workspace=place, worktree=tree)
    async with (
        session_machine(user, agent, "stop_and_remove_worktree") as machine,
        signed_in_page(browser, user) as page,
    ):
        await page.goto(machine.path)
        await page.get_by_role("button", name="Stop", exact=True).click()
        dialog = page.get_by_role("alertdialog")
        await dialog.get_by_role("checkbox", name="Remove its worktree too").check()
        await expect(dialog).to_contain_text("/srv/billing.worktrees/topic is deleted")
        await dialog.get_by_role("button", name="Stop", exact=True).click()
        command = await machine.takes("stop_and_remove_worktree")
        refusal = Failure(status=409, code=ErrorCode.WORKTREE_DIRTY, message="It has changes")
        await machine.machine.fails(command, refusal)
        await expect(dialog.get_by_role("alert")).to_contain_text("It has changes")


@pytest.mark.parametrize("width", WIDTHS)
async def test_the_history_says_why_a_session_ended_and_removes_its_worktree(
    user: Owner, browser: Browser, width: int
) -> None:
    path = "/srv/billing.worktrees/topic"
    title = "Find out why it fails"
    place = {
        "workspace": Workspace(path=path, name="topic"),
        "worktree": Worktree(branch="topic", path=path, created=True),
    }
    agent, other = session(title=title), session(title="Stopped by me")
    machine = await user.machine(agent, other)
    await ends(machine, agent, 1, **STOPPED, **place)
    await ends(machine, other, 2, **STOPPED | {"end_reason": "stopped"})
    async with signed_in(browser, user, width) as browsing:
        page = browsing.page
        await page.goto("/history")
        rows = page.get_by_role("list", name="Ended sessions").get_by_role("listitem")
        row = rows.filter(has_text=title)
        await expect(row).to_contain_text("billing")
        await expect(row.get_by_text("Claude-Code").locator("visible=true")).to_have_count(1)
        link = row.get_by_role("link", name=title)
        assert await link.evaluate("link => link.scrollWidth <= link.clientWidth")
        crashed = row.get_by_text("crashed", exact=True)
        stopped = rows.filter(has_text="Stopped by me").get_by_text("stopped", exact=True)
        assert await crashed.evaluate(COLOUR) != await stopped.evaluate(COLOUR)
        await browsing.assert_layout_holds()

        await row.get_by_role("button", name="Remove worktree", exact=True).click()
        dialog = page.get_by_role("alertdialog")
        await expect(dialog).to_contain_text(f"{path} is deleted")
        await dialog.get_by_role("button", name="Remove worktree", exact=True).click()
        command = await machine.takes("remove_worktree")
        await machine.answers(command, {"success": True, "removed": path})
        await expect(dialog).to_have_count(0)
        await expect(row.get_by_role("button", name="Remove worktree")).to_have_count(0)


async def test_a_phone_opens_the_switcher_from_its_menu(user: Owner, browser: Browser) -> None:
    await furnished_account(user)
    async with signed_in_page(browser, user, PHONE) as page:
        await page.goto("/machines")
        await page.get_by_role("button", name="Menu", exact=True).click()
        await page.get_by_role("menuitem", name="Go to…").click()
        sessions = page.get_by_role("listbox").get_by_role("group", name="Sessions")
        await sessions.get_by_role("option", name="Fix the build").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Fix the build")


async def test_on_a_phone_a_webhook_of_chosen_events_can_be_created(
    user: Owner, browser: Browser
) -> None:
    """The button is in view, however many events are listed above it."""
    async with signed_in_page(browser, user, PHONE) as page:
        await page.goto("/webhooks")
        await page.get_by_role("button", name="New webhook", exact=True).click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("checkbox", name="All events", exact=True).uncheck()
        await expect(dialog.get_by_role("checkbox")).to_have_count(14)
        create = dialog.get_by_role("button", name="Create", exact=True)
        await expect(create).to_be_in_viewport(ratio=1)
