"""What may become a password, changing it, and setting it by a one-time link.

Holds docs/access.md, "Accounts".
"""

import asyncio
from collections import Counter
from urllib.parse import urlsplit

import httpx
import pytest

from outrider.contract.errors import ApiError
from outrider.service.accounts.dashboard_sessions import DashboardSessions
from outrider.service.accounts.one_time_links import RESET_SECONDS, new_password_link
from outrider.service.accounts.passwords import WeakPassword, check_new
from outrider.service.accounts.store import users
from outrider.service.database.engine import Database
from tests.rig.clock import Clock
from tests.rig.errors import assert_error, paths
from tests.rig.people import PASSWORD, V1, dashboard, logged_in, login, person
from tests.rig.site import CHEAP_HASHER, Owner, Site, new_account

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT = f"{V1}/account"
NEW = "a quite different phrase"


class TestPolicy:
    @pytest.mark.parametrize(
        "password",
        ["correct horse", "correct horse battery staple", "Xk29-fmqR-71", "äöü 密码 phrase"],
    )
    async def test_good_ones(self, password: str) -> None:
        check_new(password, "somebody@example.org")

    @pytest.mark.parametrize(
        ("password", "why"),
        [
            ("", "10 characters"),
            ("tR4!x9_qz", "10 characters"),
            ("x" * 1001, "at most 1000"),
            ("1234567890", "easy to guess"),
            ("password123", "easy to guess"),
            ("Password123!", "easy to guess"),
            ("P@ssw0rd123", "easy to guess"),
            ("qwertyuiop", "easy to guess"),
            ("aaaaaaaaaa", "easy to guess"),
            ("passwordpassword", "easy to guess"),
            ("administrator", "easy to guess"),
            ("iloveyou123", "easy to guess"),
            ("passwordpassword" * 10, "easy to guess"),
            ("outrideroutrider", "easy to guess"),
            ("annabelle99", "easy to guess"),
            ("annabelle@example.org", "easy to guess"),
        ],
    )
    async def test_bad_ones(self, password: str, why: str) -> None:
        with pytest.raises(WeakPassword, match=why):
            check_new(password, "annabelle@example.org")


async def change(
    page: httpx.AsyncClient, current: str = PASSWORD, new: str = NEW
) -> httpx.Response:
    return await page.post(f"{V1}/auth/password", json={"current": current, "new": new})


class TestChange:
    async def test_it_ends_every_other_session(self, user: Owner) -> None:
        page, other = await dashboard(user), await dashboard(user)
        changed = await change(page)
        assert changed.json() == {"success": True}
        assert (await page.get(AT)).status_code == 200
        assert_error(await other.get(AT), 401, "AUTH_INVALID")
        assert_error(await login(user.site, user.email), 401, "AUTH_INVALID")
        assert (await login(user.site, user.email, NEW)).status_code == 200

    async def test_it_needs_a_recent_login_and_a_session(self, user: Owner) -> None:
        assert_error(await change(await dashboard(user, age=601)), 403, "RECENT_LOGIN_REQUIRED")
        assert_error(await change(user.api), 403, "RECENT_LOGIN_REQUIRED")

    async def test_a_wrong_current_password(self, user: Owner) -> None:
        page, other = await dashboard(user), await dashboard(user)
        assert_error(await change(page, "wrong"), 401, "AUTH_INVALID")
        assert (await other.get(AT)).status_code == 200
        assert (await login(user.site, user.email)).status_code == 200

    @pytest.mark.parametrize("new", ["nine char", "password123"])
    async def test_a_bad_new_password(self, user: Owner, new: str) -> None:
        assert paths(await change(await dashboard(user), new=new)) == ["new"]
        assert (await login(user.site, user.email)).status_code == 200

    async def test_of_two_at_once_one_wins(self, user: Owner) -> None:
        pages = [await dashboard(user) for _ in range(4)]
        words = [f"{NEW} {number}" for number in range(4)]
        answers = await asyncio.gather(*map(change, pages, [PASSWORD] * 4, words))
        assert Counter(answer.status_code for answer in answers) == {200: 1, 401: 3}
        works = [(await login(user.site, user.email, word)).status_code for word in words]
        assert works == [answer.status_code for answer in answers]

    async def test_a_login_under_way_with_the_old_password_begins_no_session(
        self, user: Owner
    ) -> None:
        """Else whoever knew it could keep a session over the change."""
        row = await users.by_email(user.site.database, user.email)
        assert row is not None
        attempts = [asyncio.create_task(logged_in(user)) for _ in range(5)]
        await users.set_password(user.site.database, row.id, "x")
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, ApiError):
                assert outcome.code == "AUTH_INVALID"
            else:
                assert not isinstance(outcome, BaseException)
                answer = await user.site.client(outcome.token).get(AT)
                assert_error(answer, 401, "AUTH_INVALID")


async def link_token(owner: Owner) -> str:
    """Make a link for the account's user; return its token."""
    row = await users.by_email(owner.site.database, owner.email)
    assert row is not None
    link = await new_password_link(owner.site.database, row.id, owner.site.url)
    return urlsplit(link.url).fragment


async def reset(site: Site, token: str, password: str = NEW) -> httpx.Response:
    body = {"token": token, "password": password}
    return await site.client().post(f"{V1}/auth/password/reset", json=body)


class TestReset:
    async def test_it_sets_the_password_and_ends_every_session(self, user: Owner) -> None:
        token, page = await link_token(user), await dashboard(user)
        assert (await reset(user.site, token)).json() == {"success": True}
        assert_error(await page.get(AT), 401, "AUTH_INVALID")
        assert (await login(user.site, user.email, NEW)).status_code == 200
        assert_error(await login(user.site, user.email), 401, "AUTH_INVALID")

    async def test_it_gives_a_user_without_one_a_password(self, site: Site) -> None:
        async with site.visit():
            owner = await site.account()
            assert (await reset(site, await link_token(owner))).status_code == 200
            assert (await login(site, owner.email, NEW)).status_code == 200

    async def test_it_works_once(self, user: Owner) -> None:
        token = await link_token(user)
        answers = await asyncio.gather(
            *(reset(user.site, token, f"{NEW} {number}") for number in range(5))
        )
        assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 4}
        assert paths(await reset(user.site, token)) == ["token"]

    async def test_a_bad_password_does_not_use_it_up(self, user: Owner) -> None:
        token = await link_token(user)
        assert paths(await reset(user.site, token, "password123")) == ["password"]
        assert paths(await reset(user.site, token, "short")) == ["password"]
        assert (await reset(user.site, token)).status_code == 200

    async def test_a_new_link_takes_the_place_of_the_old_one(self, user: Owner) -> None:
        old, new = await link_token(user), await link_token(user)
        assert paths(await reset(user.site, old)) == ["token"]
        assert (await reset(user.site, new)).status_code == 200

    async def test_a_changed_password_makes_it_worthless(self, user: Owner) -> None:
        token = await link_token(user)
        assert (await change(await dashboard(user))).status_code == 200
        assert paths(await reset(user.site, token)) == ["token"]

    @pytest.mark.one_store
    @pytest.mark.parametrize("token", ["", "x", "x" * 43])
    async def test_an_unknown_one(self, user: Owner, token: str) -> None:
        assert paths(await reset(user.site, token)) == ["token"]

    async def test_it_expires(self, database: Database, clock: Clock) -> None:
        account = await new_account(database)
        sessions = DashboardSessions(
            database, "a secret key of thirty-two letters", clock, CHEAP_HASHER
        )
        for late in (False, True):
            link = await new_password_link(database, account.user_id, "http://x", clock)
            clock.passes(RESET_SECONDS - (0 if late else 1))
            token = urlsplit(link.url).fragment
            if late:
                with pytest.raises(ApiError, match="too old"):
                    await sessions.reset_password(token, NEW)
            else:
                await sessions.reset_password(token, NEW)

    async def test_it_is_in_the_audit_of_the_account_without_the_token(self, user: Owner) -> None:
        token = await link_token(user)
        await reset(user.site, token)
        page = user.site.client((await login(user.site, user.email, NEW)).json()["token"])
        records = (await page.get(f"{V1}/audit")).json()["records"]
        assert [record["action"] for record in records] == ["login", "reset_password"]
        assert token not in str(records)


async def test_another_s_password_is_not_changed(site: Site, user: Owner) -> None:
    other = await person(site)
    await change(await dashboard(user))
    assert (await login(site, other.email)).status_code == 200
