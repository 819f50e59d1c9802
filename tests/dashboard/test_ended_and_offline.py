"""Pages of sessions that have ended, or whose machine is offline."""

from playwright.async_api import Browser, expect

from tests.dashboard.accounts import answer_all, disconnect
from tests.dashboard.browser_client import signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.samples import CHAT, session
from tests.rig.site import Owner
from tests.service.machines.test_session_history import STOPPED, ends

pytestmark = MARKS


async def test_opening_an_ended_session_requests_nothing_that_it_has_not(
    user: Owner, browser: Browser
) -> None:
    """Neither its status nor its queue, which would be refused."""
    agent, other = session(title="Rename the module"), session(title="Another one")
    machine = await user.machine(agent, other)
    chat = CHAT | {"state": "ended", "title": agent.title, "sessionId": agent.id, "resumable": True}
    answer_all(machine, agent, read_chat=chat | {"pendingAction": None})
    await ends(machine, agent, 1, **STOPPED)
    await ends(machine, other, 2, **STOPPED)
    async with signed_in_page(browser, user) as page:
        refused: list[str] = []
        page.on(
            "response",
            lambda response: refused.append(response.url) if response.status >= 400 else None,
        )
        path = f"/sessions/{machine.id}:session:{agent.id}"
        for first in ("/history", path):
            await page.goto(first)
            if first == "/history":
                await page.get_by_role("link", name="Rename the module").click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("Rename the module")
            await expect(page.get_by_text("its agent has crashed")).to_be_visible()
            await expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
        assert refused == []
        await page.get_by_role("link", name="Sessions", exact=True).last.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")


async def test_a_session_that_ends_while_it_is_shown_says_so(user: Owner, browser: Browser) -> None:
    agent = session(title="First")
    machine = await user.machine(agent)
    answer_all(machine, agent)
    async with signed_in_page(browser, user) as page:
        refused: list[str] = []
        page.on(
            "response",
            lambda response: refused.append(response.url) if response.status >= 400 else None,
        )
        await page.goto(f"/sessions/{machine.id}:session:{agent.id}")
        await expect(page.get_by_role("log", name="Chat")).to_contain_text("Make the tests pass")
        chat = CHAT | {"state": "ended", "title": agent.title, "sessionId": agent.id}
        answer_all(machine, agent, read_chat=chat | {"pendingAction": None})
        await ends(machine, agent, 1, **STOPPED)
        await expect(page.get_by_text("its agent has crashed")).to_be_visible()
        assert refused == []


async def test_a_session_of_an_offline_machine_shows_what_is_known(
    user: Owner, browser: Browser
) -> None:
    """Its title and status, and since when; what was typed stays."""
    agent = session(title="First", status="error", error="The model is overloaded")
    machine = await user.machine(agent, enrolled=await user.enrolls(nickname="workbench"))
    answer_all(machine, agent)
    async with signed_in_page(browser, user) as page:
        await page.goto(f"/sessions/{machine.id}:session:{agent.id}")
        message = page.get_by_role("textbox", name="Message", exact=True)
        await message.fill("a draft")
        chat = page.get_by_role("log", name="Chat")
        await expect(chat).to_contain_text("Make the tests pass")
        await disconnect(user, machine)
        await expect(page.get_by_role("alert").first).to_contain_text("workbench is offline since")
        await expect(chat).to_contain_text("Make the tests pass")
        await page.reload()
        await expect(page.get_by_role("alert").first).to_contain_text("workbench is offline since")
        await expect(page.get_by_role("heading", level=1)).to_have_text("First")
        await expect(page.locator("main").get_by_role("status")).to_have_text("error")
        await expect(page.get_by_text("The model is overloaded")).to_be_visible()
        await expect(message).to_have_value("a draft")
