"""Tool calls in the chat and in questions: what they do, how they end, and what they change."""

from typing import TYPE_CHECKING, Any, Final

import pytest

from outrider.contract.resources import FileDiff
from tests.dashboard.house import answer_all, desk, messages, question, state_of
from tests.dashboard.visitor import signed_in
from tests.rig.samples import CHAT, session
from tests.rig.site import Owner

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]

PATCH: Final = "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n import sys\n-old = 1\n+new = 2\n"
AT: Final = 1_750_000_000_000


def _tool(number: int, kind: str, title: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"call_{number}",
        "kind": kind,
        "title": title,
        "status": "completed",
        "exitCode": None,
        "diff": [],
        "locations": [],
        "startedAt": AT,
        "endedAt": AT,
    } | fields


def _talk(*tools: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a chat with these calls, by their contents, and a result of each."""
    said = messages(
        ("user", "text", "Make the tests pass"),
        *(("assistant", "tool_call", content) for content, _ in tools),
        *(("tool", "tool_result", f"output of {tool['id']}") for _, tool in tools),
    )
    for number, (_, tool) in enumerate(tools):
        said[1 + number]["tool"] = tool
        said[1 + number + len(tools)]["tool"] = tool
    return said


async def test_tool_calls_show_how_they_ended_and_what_they_changed(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    one = session()
    machine = await user.machine(one)
    command = '{"name": "Bash", "input": {"command": "make test"}}'
    talk = _talk(
        (command, _tool(1, "execute", "make test", exitCode=2, status="failed")),
        (command, _tool(2, "execute", "make test", exitCode=0, endedAt=AT + 12_000)),
        (
            '{"name": "Edit", "input": {"path": "app.py"}}',
            _tool(3, "edit", "Edit app.py", diff=[{"path": "app.py", "patch": PATCH}]),
        ),
    )
    answer_all(
        machine,
        one,
        read_chat=CHAT | {"messages": talk, "totalMessages": len(talk), "pendingAction": None},
        agent_status=state_of(one),
    )
    async with signed_in(browser, user) as visitor:
        page = visitor.page
        await page.goto(f"/sessions/{machine.id}:session:{one.id}")
        chat = page.get_by_role("log", name="Chat")
        failed, passed = (chat.get_by_role("button", name="$ make test").nth(n) for n in (0, 1))
        await expect(failed).to_contain_text("exit 2")
        await expect(passed).to_contain_text("12s")
        await expect(passed.get_by_role("img", name="completed")).to_be_visible()
        await passed.click()
        await expect(chat).to_contain_text("output of call_2")
        await expect(chat).not_to_contain_text('"command"')

        edit = chat.get_by_role("button", name="Edit app.py")
        await expect(edit).to_contain_text("+1 \N{MINUS SIGN}1")
        await edit.click()
        await expect(chat.locator(".diff-code-insert")).to_have_text("new = 2")
        await expect(chat.locator(".diff-code-delete")).to_have_text("old = 1")
        await expect(chat.locator(".diff-gutter-delete").first).to_have_text("2")
        await visitor.assert_layout_holds()


async def test_the_question_of_an_edit_shows_the_diff(user: Owner, browser: "Browser") -> None:
    """In a part of the screen; in full in a dialog."""
    from playwright.async_api import expect

    asked = question(f"Edit app.py\n{PATCH}")
    asked.diff = [FileDiff(path="app.py", patch=PATCH)]
    one = session(status="waiting_approval", title="First", pending_action=asked)
    async with (
        desk(user, one, "resolve_action") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        for path in (machine.path, "/inbox"):
            await page.goto(path)
            card = page.get_by_role("region", name="asks")
            await expect(card.locator(".diff-code-insert")).to_have_text("new = 2")
            await expect(card).to_contain_text("Edit app.py")
            await card.get_by_role("button", name="Open in full").click()
            dialog = page.get_by_role("dialog", name="Edit app.py")
            await expect(dialog.locator(".diff-code-insert")).to_have_text("new = 2")
            await page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)
        await page.get_by_role("button", name="Approve", exact=True).click()
        await machine.takes("resolve_action", action="approve")


async def test_a_plan_shows_its_current_step(user: Owner, browser: "Browser") -> None:
    from playwright.async_api import expect

    one = session()
    machine = await user.machine(one)
    talk = messages(("assistant", "thinking", "- [x] Find where\n- [~] Keep the API\n- [ ] Test"))
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
        plan = chat.get_by_role("button", name="Plan 1 of 3")
        await expect(plan).to_contain_text("Keep the API")
        await plan.click()
        await expect(chat.get_by_role("listitem")).to_have_text(
            ["Find where", "Keep the API", "Test"]
        )
        await expect(chat.get_by_role("img", name="in progress")).to_have_count(1)
