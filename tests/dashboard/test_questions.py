"""Questions of agents, in the inbox and on a session's page: what is offered, what a tap hits."""

from msgspec.structs import replace
from playwright.async_api import Browser, Locator, Page, expect

from tests.dashboard.accounts import disconnect, question, session_machine
from tests.dashboard.browser_client import PHONE, signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.samples import session
from tests.rig.site import Owner

pytestmark = MARKS


def _button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


async def _spot(button: Locator) -> tuple[float, float]:
    box = await button.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def test_two_taps_at_one_spot_of_the_inbox_answer_one_question(
    user: Owner, browser: Browser
) -> None:
    """An answered card folds in its place: the card below stays where it is."""
    agent = session(
        status="waiting_approval", title="First", pending_action=question("Run `make`?")
    )
    async with (
        session_machine(user, agent, "resolve_action") as machine,
        signed_in_page(browser, user, PHONE) as page,
    ):
        asked = replace(question("Delete it all?"), id="act_2")
        other = session(status="waiting_approval", title="Second", pending_action=asked)
        second_machine = await user.machine(other)
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
        assert machine.unanswered.empty()
        assert second_machine.received_nothing()
        await _button(page, "Approve").tap()
        await second_machine.takes("resolve_action", actionId="act_2")


async def test_the_next_question_of_the_inbox_has_the_focus_after_an_answer(
    user: Owner, browser: Browser
) -> None:
    async with signed_in_page(browser, user) as page:
        machines = []
        for number in range(3):
            asked = replace(question(f"Question {number}"), id=f"act_{number}")
            title = f"Session {number}"
            agent = session(status="waiting_approval", title=title, pending_action=asked)
            machines.append(await user.machine(agent))
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
    user: Owner, browser: Browser
) -> None:
    """To its question, which keys then answer, or to the message box."""
    asks = session(status="waiting_approval", title="Asks", pending_action=question())
    async with (
        session_machine(user, asks, "resolve_action") as machine,
        signed_in_page(browser, user) as page,
    ):
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
