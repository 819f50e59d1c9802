"""Questions of agents, in the inbox and on a session's page: what is offered, what a tap hits."""

from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec.structs import replace

from outrider.contract.resources import ActionOption, PendingAction
from tests.dashboard.house import desk, disconnect, question
from tests.dashboard.visitor import PHONE, signed_in
from tests.rig.samples import session
from tests.rig.site import Owner

if TYPE_CHECKING:
    from playwright.async_api import Browser, Locator, Page

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.one_store,
    pytest.mark.dashboard,
    pytest.mark.timeout(600),
]

DATABASES: Final = PendingAction(
    id="act_db",
    message="Which database shall I use?",
    options=[
        ActionOption(id="pg", label="PostgreSQL (costs money)", kind="allow_once"),
        ActionOption(id="lite", label="SQLite", kind="allow_once"),
        ActionOption(id="my", label="MySQL", kind="allow_once"),
        ActionOption(id="stop", label="Stop and think", kind="reject_once"),
    ],
)


def _button(page: "Page", name: str) -> "Locator":
    return page.get_by_role("button", name=name, exact=True)


@pytest.mark.parametrize("path", ["/inbox", "session"])
async def test_a_question_with_several_choices_offers_each_by_its_label(
    user: Owner, browser: "Browser", path: str
) -> None:
    """Nothing is called Approve, whose choice would be a guess; a number chooses one."""
    from playwright.async_api import expect

    one = session(status="waiting_approval", title="First", pending_action=DATABASES)
    async with (
        desk(user, one, "resolve_action") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path if path == "session" else path)
        for option in DATABASES.options:
            await expect(_button(page, option.label)).to_be_visible()
        for name in ("Approve", "Reject", "More"):
            await expect(_button(page, name)).to_have_count(0)
        await page.keyboard.press("j")
        await page.keyboard.press("a")
        await expect(page.get_by_role("alert")).to_contain_text("Press the number of one")
        await page.keyboard.press("2")
        command = await machine.takes("resolve_action", action="approve", optionId="lite")
        await machine.reports(status="generating", pending_action=None)
        await machine.machine.answers(command)
        await expect(_button(page, "SQLite")).to_have_count(0)

        again = replace(DATABASES, id="act_again")
        await machine.reports(status="waiting_approval", pending_action=again)
        await _button(page, "Stop and think").click()
        await machine.takes("resolve_action", action="reject", optionId="stop")
        assert machine.kept.empty()


async def test_approve_and_reject_choose_what_the_card_says(
    user: Owner, browser: "Browser"
) -> None:
    """The agent's own labels can be read beside them."""
    from playwright.async_api import expect

    one = session(status="waiting_approval", title="First", pending_action=question())
    async with (
        desk(user, one, "resolve_action") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto(machine.path)
        await expect(_button(page, "Approve")).to_have_accessible_description("Approve: Allow once")
        await expect(page.get_by_text("Approve: Allow once")).to_be_visible()
        await _button(page, "Reject").click()
        await machine.takes("resolve_action", action="reject", optionId="no")


async def _spot(button: "Locator") -> tuple[float, float]:
    box = await button.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def test_two_taps_at_one_spot_of_the_inbox_answer_one_question(
    user: Owner, browser: "Browser"
) -> None:
    """An answered card folds in its place: the card below stays where it is."""
    from playwright.async_api import expect

    one = session(status="waiting_approval", title="First", pending_action=question("Run `make`?"))
    async with (
        desk(user, one, "resolve_action") as machine,
        signed_in(browser, user, PHONE) as visitor,
    ):
        asked = replace(question("Delete it all?"), id="act_2")
        other = session(status="waiting_approval", title="Second", pending_action=asked)
        second_machine = await user.machine(other)
        page = visitor.page
        await page.goto("/inbox")
        cards = page.get_by_role("list", name="Open questions").get_by_role("listitem")
        await expect(cards).to_have_count(2)
        first, second = cards.filter(has_text="First"), cards.filter(has_text="Second")
        assert await first.evaluate("card => card.nextElementSibling !== null")
        place = await second.bounding_box()
        spot = await _spot(first.get_by_role("button", name="Approve", exact=True))
        await page.touchscreen.tap(*spot)
        command = await machine.takes("resolve_action", action="approve")
        await machine.reports(status="generating", pending_action=None)
        await machine.machine.answers(command)
        await expect(_button(page, "Approve")).to_have_count(1)
        await expect(cards.first).to_have_text("Allow once: Run `make`?")
        await page.touchscreen.tap(*spot)
        assert await second.bounding_box() == place
        assert machine.kept.empty()
        assert second_machine.received_nothing()
        await _button(page, "Approve").tap()
        await second_machine.takes("resolve_action", actionId="act_2")


async def test_the_next_question_of_a_session_does_not_take_a_tap_for_the_one_before(
    user: Owner, browser: "Browser"
) -> None:
    """It has the same place; for a second it cannot be answered."""
    from playwright.async_api import expect

    one = session(status="waiting_approval", title="First", pending_action=question("Run `make`?"))
    async with (
        desk(user, one, "resolve_action") as machine,
        signed_in(browser, user, PHONE) as visitor,
    ):
        page = visitor.page
        await page.clock.install()
        await page.goto(machine.path)
        approve = _button(page, "Approve")
        await expect(approve).to_be_enabled()
        spot = await _spot(approve)
        await page.touchscreen.tap(*spot)
        command = await machine.takes("resolve_action", action="approve", actionId="act_1")
        now: Any = await page.evaluate("Date.now()")
        await page.clock.pause_at(now / 1000 + 1)
        asked = replace(question("Delete it all?"), id="act_2")
        await machine.reports(pending_action=asked)
        await machine.machine.answers(command)
        card = page.get_by_role("region").filter(has_text="Delete it all?")
        for _ in range(10):  # what the page does later, it does with timers
            await page.clock.run_for(50)
            if await card.count():
                break
        await expect(card).to_be_visible()
        await expect(approve).to_be_disabled()
        await page.touchscreen.tap(*spot)
        assert machine.kept.empty()
        await page.clock.run_for(1000)
        await expect(approve).to_be_enabled()
        await page.touchscreen.tap(*spot)
        await machine.takes("resolve_action", actionId="act_2")


async def test_the_next_question_of_the_inbox_has_the_focus_after_an_answer(
    user: Owner, browser: "Browser"
) -> None:
    from playwright.async_api import expect

    async with signed_in(browser, user) as visitor:
        machines = []
        for number in range(3):
            asked = replace(question(f"Question {number}"), id=f"act_{number}")
            title = f"Session {number}"
            one = session(status="waiting_approval", title=title, pending_action=asked)
            machines.append(await user.machine(one))
        page = visitor.page
        await page.goto("/inbox")
        await expect(_button(page, "Approve")).to_have_count(3)
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        cards = page.get_by_role("list", name="Open questions").get_by_role("listitem")
        await expect(cards.nth(1)).to_be_focused()
        # The middle one leaves with its machine: nothing was answered, but the focus would be lost.
        order = [await card.get_by_role("link").inner_text() for card in await cards.all()]
        middle = machines[int(order[1].split()[-1])]
        await disconnect(user, middle)
        await expect(_button(page, "Approve")).to_have_count(2)
        await expect(cards.nth(2)).to_be_focused()


async def test_opening_a_session_gives_the_focus_to_what_comes_next(
    user: Owner, browser: "Browser"
) -> None:
    """To its question, which keys then answer, or to the message box."""
    from playwright.async_api import expect

    asks = session(status="waiting_approval", title="Asks", pending_action=question())
    async with (
        desk(user, asks, "resolve_action") as machine,
        signed_in(browser, user) as visitor,
    ):
        page = visitor.page
        await page.goto("/")
        link = page.get_by_role("link", name="Asks", exact=True)
        await link.press("Enter")
        card = page.locator("[data-row]").filter(has=_button(page, "Approve"))
        await expect(card).to_be_focused()
        await page.keyboard.press("a")
        command = await machine.takes("resolve_action", action="approve")
        await machine.reports(status="idle", pending_action=None)
        await machine.machine.answers(command)
        await expect(card).to_have_count(0)
        await expect(page.get_by_role("main")).to_be_focused()
        await page.keyboard.press("g")
        await page.keyboard.press("s")
        await link.press("Enter")
        message = page.get_by_role("textbox", name="Message", exact=True)
        await expect(message).to_be_focused()
        await page.keyboard.press("Escape")
        await page.keyboard.press("g")
        await page.keyboard.press("i")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
