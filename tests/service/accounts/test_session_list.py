"""The sessions in which a user is signed in: listed, ended, and ended by wrong passwords.

Holds docs/access.md, "Sessions".
"""

import asyncio
import time
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from outrider.contract.ids import new_id
from outrider.service.accounts.dashboard_sessions import MAX_FAILURES
from outrider.service.accounts.store import users
from outrider.service.database import tables
from outrider.service.http.session_cookie import COOKIE
from tests.rig.errors import assert_error
from tests.rig.people import PASSWORD, V1, dashboard, login, person
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT = f"{V1}/account/sessions"


async def signed_in(owner: Owner, agent: bytes = b"test") -> httpx.AsyncClient:
    """Log in through the API with a client of this name."""
    answer = await login(owner.site, owner.email, headers={b"User-Agent": agent})
    return owner.site.client(answer.raise_for_status().json()["token"])


async def listed(page: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await page.get(AT)
    assert answer.status_code == 200, answer.text
    sessions: list[dict[str, Any]] = answer.json()["sessions"]
    return sessions


class TestList:
    async def test_its_fields(self, user: Owner) -> None:
        before = int(time.time() * 1000)
        phone = await signed_in(user, b"Phone/1\x9b2J \xe9")
        desk = await signed_in(user, b"Desk/2 " + b"x" * 1000)
        here, there = await listed(desk)
        assert here.keys() == {
            "id",
            "createdAt",
            "lastSeenAt",
            "address",
            "userAgent",
            "current",
        }
        assert (here["current"], there["current"]) == (True, False)
        assert (here["address"], here["userAgent"]) == ("127.0.0.1", "Desk/2 " + "x" * 293)
        assert there["userAgent"] == "Phone/1\ufffd2J é"
        for session in (here, there):
            assert before <= session["createdAt"] <= session["lastSeenAt"]
        (current,) = [item for item in await listed(phone) if item["current"]]
        assert current["id"] == there["id"]

    async def test_when_it_was_seen_last(self, user: Owner) -> None:
        """Also where another session asks, and after it was written down."""
        page, other = await signed_in(user), await signed_in(user)
        (first,) = [item for item in await listed(page) if item["current"]]

        async def later() -> bool:
            await page.get(f"{V1}/account")
            seen = {item["id"]: item["lastSeenAt"] for item in await listed(other)}
            return bool(seen[first["id"]] > first["lastSeenAt"])

        await eventually(later)

    async def test_one_that_an_older_release_began(self, user: Owner) -> None:
        """During a rolling update a node of it stores neither the address nor when it was seen."""
        page = await signed_in(user)
        row = await users.by_email(user.site.database, user.email)
        assert row is not None
        now = int(time.time() * 1000)
        old: dict[str, Any] = {"id": new_id("session"), "user_id": row.id}
        old |= {"created_at": now, "expires_at": now + 60_000}
        async with user.site.database.begin() as transaction:
            await transaction.execute(insert(tables.sessions).values(old))
        (listed_old,) = [item for item in await listed(page) if item["id"] == old["id"]]
        assert listed_old == {
            "id": old["id"],
            "createdAt": now,
            "lastSeenAt": now,
            "address": None,
            "userAgent": None,
            "current": False,
        }

    async def test_only_the_user_s_own(self, site: Site, user: Owner) -> None:
        other = await person(site)
        await signed_in(other)
        assert len(await listed(await signed_in(user))) == 1

    async def test_not_with_a_key(self, user: Owner) -> None:
        assert_error(await user.api.get(AT), 403, "AUTH_FORBIDDEN")


class TestEnd:
    async def test_one_of_them(self, user: Owner) -> None:
        page, other = await signed_in(user), await signed_in(user)
        (theirs,) = [item for item in await listed(page) if not item["current"]]
        ended = await page.delete(f"{AT}/{theirs['id']}")
        assert ended.json() == {"success": True, "id": theirs["id"]}
        assert_error(await other.get(AT), 401, "AUTH_INVALID")
        assert len(await listed(page)) == 1
        assert_error(await page.delete(f"{AT}/{theirs['id']}"), 404)

    async def test_its_own_is_a_logout(self, user: Owner) -> None:
        page = await signed_in(user)
        (own,) = await listed(page)
        ended = await page.delete(f"{AT}/{own['id']}")
        assert ended.status_code == 200
        assert f"{COOKIE}=; Path=/; Max-Age=0" in ended.headers["set-cookie"]
        assert_error(await page.get(AT), 401, "AUTH_INVALID")

    async def test_all_but_this_one(self, site: Site, user: Owner) -> None:
        page, *others = [await signed_in(user) for _ in range(3)]
        stranger = await signed_in(await person(site))
        assert (await page.delete(AT)).json() == {"success": True, "ended": 2}
        for other in others:
            assert_error(await other.get(AT), 401, "AUTH_INVALID")
        assert len(await listed(page)) == len(await listed(stranger)) == 1
        assert (await page.delete(AT)).json() == {"success": True, "ended": 0}

    async def test_it_holds_on_every_node_at_once(self, two_nodes: tuple[Site, Site]) -> None:
        first, second = two_nodes
        owner = await person(first)
        page = await dashboard(owner)
        token = (await login(second, owner.email)).json()["token"]
        assert (await second.client(token).get(AT)).status_code == 200
        await page.delete(AT)
        assert_error(await second.client(token).get(AT), 401, "AUTH_INVALID")


class TestWrongPasswords:
    async def give(self, page: httpx.AsyncClient, password: str) -> httpx.Response:
        return await page.post(f"{V1}/auth/reauthenticate", json={"password": password})

    async def test_ten_in_a_row_end_the_session(self, user: Owner) -> None:
        page, other = await signed_in(user), await signed_in(user)
        for number in range(MAX_FAILURES):
            refused = await self.give(page, "wrong")
            said = assert_error(refused, 401, "AUTH_INVALID")["error"]
            assert ("has ended" in said) == (number == MAX_FAILURES - 1)
        assert_error(await page.get(AT), 401, "AUTH_INVALID")
        assert_error(await self.give(page, PASSWORD), 401, "AUTH_INVALID")
        assert (await other.get(AT)).status_code == 200

    async def test_of_many_at_once_ten_are_checked(self, user: Owner) -> None:
        """However many guesses are under way before the first is found wrong."""
        page = await signed_in(user)
        answers = await asyncio.gather(*(self.give(page, "wrong") for _ in range(30)))
        sentences = [assert_error(answer, 401, "AUTH_INVALID")["error"] for answer in answers]
        assert sentences.count("The password is wrong") == MAX_FAILURES - 1
        assert_error(await page.get(AT), 401, "AUTH_INVALID")

    async def test_a_right_one_begins_anew(self, user: Owner) -> None:
        page = await signed_in(user)
        for _ in range(3):
            for _ in range(MAX_FAILURES - 1):
                await self.give(page, "wrong")
            assert (await self.give(page, PASSWORD)).status_code == 200

    async def test_those_of_changing_the_password_count(self, user: Owner) -> None:
        page = await signed_in(user)
        body = {"current": "wrong", "new": "a quite different phrase"}
        for _ in range(MAX_FAILURES):
            assert_error(await page.post(f"{V1}/auth/password", json=body), 401, "AUTH_INVALID")
        assert_error(await page.get(AT), 401, "AUTH_INVALID")
