"""Code and diffs in colours, and texts that would take a browser very long."""

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.dashboard.house import answer_all, desk, messages, state_of
from tests.dashboard.visitor import signed_in
from tests.rig.samples import CHANGES, CHAT, session
from tests.rig.site import Owner

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]

LONG: Final = 900_000


def _changes_of(before: str, after: str) -> dict[str, Any]:
    change = {"path": "app.min.js", "oldPath": None, "status": "modified", "binary": False}
    patch = (
        "diff --git a/app.min.js b/app.min.js\n--- a/app.min.js\n+++ b/app.min.js\n"
        f"@@ -1 +1 @@\n-{before}\n+{after}\n"
    )
    return CHANGES | {"files": [change | {"additions": 1, "deletions": 1}], "patch": patch}


async def test_code_is_coloured_in_a_worker(user: Owner, browser: "Browser") -> None:
    """There, it cannot stop the page; the policy of the page allows it from this origin only."""
    from playwright.async_api import expect

    async with (
        desk(user, session()) as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path)
        await expect(page.get_by_role("log").locator("code .hljs-string")).to_have_text("'fixed'")
        (worker,) = page.workers
        assert worker.url.startswith(visitor.url)


async def test_a_file_of_one_long_line_does_not_stop_the_page(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    one = session()
    machine = await user.machine(one)
    before = "let a=1;" * (LONG // 8)
    answer_all(machine, one, read_changes=_changes_of(before, before.replace("1", "2")))
    async with signed_in(browser, user) as visitor:
        page = visitor.page
        await page.goto(f"/sessions/{machine.id}:session:{one.id}?tab=changes")
        changes = page.get_by_role("tabpanel", name="Changes")
        await expect(changes).to_contain_text("898000 more characters, not shown")
        await page.get_by_role("tab", name="Files", exact=True).click()
        await expect(page.get_by_role("tabpanel", name="Files")).to_contain_text("a.py")


async def test_code_that_takes_too_long_to_colour_stays_plain(
    user: Owner, browser: "Browser"
) -> None:
    """What comes after it has colours."""
    from playwright.async_api import expect

    one = session()
    machine = await user.machine(one)
    hostile = f"{'a.' * 15}\n" * 960
    text = f"```ini\n{hostile}```\n\n```python\nprint('fixed')\n```\n"
    talk = messages(("assistant", "text", text))
    answer_all(
        machine,
        one,
        read_chat=CHAT | {"messages": talk, "totalMessages": 1, "pendingAction": None},
        agent_status=state_of(one),
    )
    async with signed_in(browser, user) as visitor:
        page = visitor.page
        await page.goto(f"/sessions/{machine.id}:session:{one.id}")
        chat = page.get_by_role("log", name="Chat")
        await expect(chat.locator("code .hljs-string")).to_have_text("'fixed'")
        await expect(chat).to_contain_text("a.a.a.")
