"""The pages of what an account has: machines, webhooks, keys, logins, history; the base path."""

import re

from playwright.async_api import Browser, Locator, expect

from outrider.contract.enrollment import EnrollRequest
from outrider.service.accounts.enrollment import Enrollment
from tests.conftest import StartSite
from tests.dashboard.accounts import answer_all, furnished_account
from tests.dashboard.browser_client import BrowserClient, open_browser, signed_in, signed_in_page
from tests.dashboard.conftest import MARKS
from tests.rig.people import PAGE_SECRET, PASSWORD, dashboard, person
from tests.rig.samples import session
from tests.rig.site import Owner
from tests.rig.waiting import eventually
from tests.service.webhooks.receiver import receiving

pytestmark = MARKS


def row(browsing: BrowserClient, list_name: str, link: str) -> Locator:
    """Return the row of a list with this link."""
    page = browsing.page
    rows = page.get_by_role("list", name=list_name, exact=True).get_by_role("listitem")
    return rows.filter(has=page.get_by_role("link", name=link, exact=True))


async def confirms(browsing: BrowserClient, action: str) -> None:
    """Press the button of an action, and the one in the dialog, which repeats its word."""
    await browsing.page.get_by_role("button", name=action, exact=True).click()
    dialog = browsing.page.get_by_role("alertdialog")
    await dialog.get_by_role("button", name=action, exact=True).click()
    await expect(dialog).to_have_count(0)


async def actions_of(browsing: BrowserClient) -> list[str]:
    """Return the actions of the account's audit records, the newest first."""
    secret = {"X-Outrider-Page-Secret": PAGE_SECRET}
    answer = await browsing.page.request.get(f"{browsing.url}/api/v1/audit", headers=secret)
    return [record["action"] for record in (await answer.json())["records"]]


async def test_a_machine_connects_drops_and_is_disconnected(
    start_site: StartSite, browser: Browser, built: None
) -> None:
    """The dialog shows the commands, and then the machine; each state has its word in the row."""
    site = await start_site(grace_period=3600)
    owner = await person(site)
    async with signed_in(browser, owner) as browsing:
        page = browsing.page
        await page.goto("/machines")
        await page.get_by_role("button", name="Connect a machine", exact=True).click()
        dialog = page.get_by_role("dialog", name="Connect a machine", exact=True)
        setup = re.compile(
            rf"outrider setup --server {re.escape(site.url)} --code ([A-Z0-9-]+)"
            " --nickname 'my laptop'$"
        )
        name = dialog.get_by_role("textbox", name="Name")
        await expect(name).to_be_focused()
        await name.fill("my laptop")
        assert await actions_of(browsing) == ["login"]  # no code before one is wanted
        await name.press("Enter")
        command = dialog.get_by_text(setup)
        await expect(command).to_be_visible()
        await expect(dialog.get_by_text("outrider daemon", exact=True)).to_be_visible()
        found = setup.search(await command.inner_text())
        assert found is not None

        request = EnrollRequest(
            code=found[1], hostname="laptop", platform="linux", nickname="my laptop"
        )
        _, enrolled = await Enrollment(site.database).redeem(request)
        machine = await owner.machine(session(title="First"), enrolled=enrolled)
        await expect(dialog).to_contain_text("my laptop is connected.")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        status = row(browsing, "Machines", "my laptop").get_by_role("status")
        await expect(status).to_have_text("online")
        await machine.drops()
        await expect(status).to_have_text("reconnecting")
        again = await owner.machine(session(title="First"), enrolled=enrolled)
        await expect(status).to_have_text("online")

        await page.get_by_role("link", name="my laptop", exact=True).click()
        answer_all(again, session(title="First"))
        await confirms(browsing, "Disconnect")
        await again.closed()
        await page.goto("/machines")
        await expect(status).to_have_text("offline")


async def test_a_webhook_is_tested_paused_rotated_resent_and_deleted(
    user: Owner, browser: Browser
) -> None:
    async with receiving() as receiver, signed_in(browser, user) as browsing:
        client = await dashboard(user)
        body = {"url": receiver.url, "events": ["agent:error"]}
        webhook = (await client.post("/api/v1/webhooks", json=body)).json()
        page = browsing.page
        await page.goto(f"/webhooks/{webhook['id']}")

        await page.get_by_role("button", name="Test", exact=True).click()
        await receiver.wait_for(1)
        deliveries = page.get_by_role("list", name="Deliveries").get_by_role("listitem")
        await expect(deliveries.get_by_role("status")).to_have_text(["succeeded"])
        await deliveries.get_by_role("button", name="Resend", exact=True).click()
        await receiver.wait_for(2)
        await deliveries.first.get_by_role("button", name="Details").click()
        await expect(page.get_by_role("region", name="Request")).to_contain_text(receiver.url)

        await confirms(browsing, "Replay")
        await expect(page.get_by_text("No delivery has failed")).to_be_visible()
        await page.get_by_role("button", name="Pause", exact=True).click()
        await expect(page.get_by_text("paused", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Resume", exact=True).click()
        await expect(page.get_by_text("active", exact=True)).to_be_visible()
        await confirms(browsing, "Rotate secret")
        secret = page.get_by_role("dialog", name="The new secret")
        await expect(secret).to_contain_text("whsec_")
        await secret.get_by_role("button", name="Done", exact=True).click()
        await expect(secret).to_have_count(0)
        await confirms(browsing, "Delete")
        await expect(page.get_by_role("heading", name="No webhook yet")).to_be_visible()


async def test_keys_logins_and_the_audit(user: Owner, browser: Browser) -> None:
    other = await dashboard(user)
    async with signed_in(browser, user) as browsing:
        page = browsing.page
        await page.goto("/account")
        await expect(page.get_by_role("main")).to_contain_text(user.email)
        sessions = page.get_by_role("region", name="Signed-in sessions").get_by_role("listitem")
        await expect(sessions).to_have_count(2)
        elsewhere = sessions.filter(has_not_text="this one")
        await elsewhere.get_by_role("button", name="Sign out", exact=True).click()
        await expect(sessions).to_have_count(1)
        assert (await other.get("/api/v1/account")).status_code == 401

        keys = page.get_by_role("region", name="API keys").get_by_role("listitem")
        await expect(keys).to_have_count(1)
        await confirms(browsing, "Revoke")
        await expect(keys).to_have_count(0)
        assert (await user.api.get("/api/v1/daemons")).status_code == 401

        await page.reload()
        actions = await actions_of(browsing)
        rows = page.get_by_role("region", name="Audit").get_by_role("row")
        await expect(rows).to_have_count(len(actions))
        for shown, action in zip(await rows.all(), actions, strict=True):
            await expect(shown).to_contain_text(action)


async def test_the_password_is_changed(user: Owner, browser: Browser) -> None:
    other = await dashboard(user)
    new = "another long password"
    async with signed_in(browser, user) as browsing:
        page = browsing.page
        await page.goto("/account")
        form = page.get_by_role("region", name="Change the password")
        await form.get_by_label("Current password").fill("not the password")
        await form.get_by_label("New password").fill(new)
        await form.get_by_role("button", name="Change", exact=True).click()
        await expect(form.get_by_role("alert")).to_be_visible()
        await form.get_by_label("Current password").fill(PASSWORD)
        await form.get_by_label("New password").press("Enter")
        await expect(form).to_contain_text("The password is changed.")
        assert (await other.get("/api/v1/account")).status_code == 401
        await browsing.log_in(user.email, new)


async def test_the_search_of_the_history(user: Owner, browser: Browser) -> None:
    await furnished_account(user)
    async with signed_in(browser, user) as browsing:
        page = browsing.page
        await page.goto("/history")
        ended = row(browsing, "Ended sessions", "Rename the module")
        box = page.get_by_role("searchbox")
        await expect(ended.get_by_role("status")).to_have_text("ended")
        for text in ("rename", "/srv/project", "workbench"):
            await box.fill("nothing like it")
            await expect(page.get_by_role("heading", name="No ended session")).to_be_visible()
            await box.fill(text)
            await expect(ended).to_be_visible()


async def test_a_device_is_rejected(user: Owner, browser: Browser) -> None:
    """The page shows the code, the machine and a warning before anything happens."""
    client = user.site.client()
    machine = {"hostname": "new-laptop", "platform": "linux"}
    asked = (await client.post("/api/v1/auth/device", json=machine)).json()
    async with signed_in_page(browser, user) as page:
        await page.goto(f"/device?code={asked['userCode']}")
        await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
        for text in (asked["userCode"], "new-laptop", "only if you started its setup yourself"):
            await expect(page.get_by_role("main")).to_contain_text(text)
        await page.get_by_role("button", name="Reject", exact=True).click()
        await expect(page.get_by_role("main")).to_contain_text("The machine was rejected")
    got = await client.post("/api/v1/auth/device/token", json={"deviceCode": asked["deviceCode"]})
    assert got.status_code == 400


async def test_below_a_base_path(start_site: StartSite, browser: Browser, built: None) -> None:
    """The login, pages, keys and the stream work where a proxy has the service below a path."""
    site = await start_site(base_path="/outrider")
    owner = await person(site)
    async with open_browser(browser, site.url) as browsing:
        page = browsing.page
        streams: list[str] = []
        page.on(
            "request",
            lambda request: streams.append(request.url) if "/events?" in request.url else None,
        )
        await page.goto(f"{site.url}/machines")
        await expect(page).to_have_url(re.compile(r"/outrider/login\?next="))
        await browsing.type_login(owner.email, PASSWORD)
        await expect(page.get_by_role("heading", name="Machines", exact=True)).to_be_visible()
        await expect(page).to_have_url(f"{site.url}/machines")
        await page.keyboard.press("g")
        await page.keyboard.press("i")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Inbox")
        await expect(page).to_have_url(f"{site.url}/inbox")
        await eventually(lambda: len(streams) == 1)
        assert streams[0].startswith(f"{site.url}/api/v1/events")
        await owner.machine(session(title="First"))
        await page.goto(f"{site.url}/")
        await expect(page.get_by_role("link", name="First", exact=True)).to_be_visible()
