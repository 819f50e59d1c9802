"""Code and diffs in colours, and texts that would take a browser very long."""

from playwright.async_api import Browser, expect

from tests.dashboard.accounts import answer_all, messages, session_machine, state_of
from tests.dashboard.browser_client import signed_in, signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.samples import CHAT, session
from tests.rig.site import Owner

pytestmark = MARKS


async def test_code_is_coloured_in_a_worker(user: Owner, browser: Browser) -> None:
    """There, it cannot stop the page; the policy of the page allows it from this origin only."""
    async with (
        session_machine(user, session()) as machine,
        signed_in(browser, user) as browsing,
    ):
        page = browsing.page
        await page.goto(machine.path)
        await expect(page.get_by_role("log").locator("code .hljs-string")).to_have_text("'fixed'")
        (worker,) = page.workers
        assert worker.url.startswith(browsing.url)


async def test_code_that_takes_too_long_to_colour_stays_plain(
    user: Owner, browser: Browser
) -> None:
    """What comes after it has colours."""
    agent = session()
    machine = await user.machine(agent)
    hostile = f"{'a.' * 15}\n" * 960
    text = f"```ini\n{hostile}```\n\n```python\nprint('fixed')\n```\n"
    talk = messages(("assistant", "text", text))
    answer_all(
        machine,
        agent,
        read_chat=CHAT | {"messages": talk, "totalMessages": 1, "pendingAction": None},
        agent_status=state_of(agent),
    )
    async with signed_in_page(browser, user) as page:
        await page.goto(f"/sessions/{machine.id}:session:{agent.id}")
        chat = page.get_by_role("log", name="Chat")
        await expect(chat.locator("code .hljs-string")).to_have_text("'fixed'")
        await expect(chat).to_contain_text("a.a.a.")
