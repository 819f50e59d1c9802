"""Dashboard sessions: beginning, renewing, ending, and what carries them."""

import base64
import json
import time
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import jwt
import pytest
from argon2 import PasswordHasher

from outrider.contract.errors import ApiError
from outrider.service.accounts import passwords
from outrider.service.accounts.authentication import Authenticator
from outrider.service.accounts.dashboard_sessions import DashboardSessions
from outrider.service.accounts.encryption import derived, secret_key
from outrider.service.accounts.one_time_links import new_password_link
from outrider.service.accounts.store import users
from outrider.service.components import Options
from outrider.service.database.engine import Database
from outrider.service.http.session_cookie import COOKIE
from tests.conftest import StartSite, settings
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import (
    CHEAP_HASH,
    PAGE_SECRET,
    PASSWORD,
    V1,
    dashboard,
    logged_in,
    login,
    page_headers,
    page_of,
    person,
)
from tests.rig.site import Owner, Site, new_account
from tests.rig.stores import PostgreSQL

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT = f"{V1}/daemons"
SECRET = "a secret key of thirty-two letters or more"


class RecordingHasher(PasswordHasher):
    """Hashes at full cost, and records the hashes that it verifies."""

    def __init__(self) -> None:
        super().__init__()
        self.verified: list[str] = []

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002
        self.verified.append(str(hash))
        return super().verify(hash, password)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class TestLogin:
    async def test_it_gives_a_session(self, user: Owner) -> None:
        before = int(time.time() * 1000)
        response = await login(user.site, f"  {user.email.upper()} ")
        body = response.json()
        assert response.status_code == 200
        assert body.keys() == {"token", "expiresAt", "authTime", "user"}
        assert body["user"]["email"] == user.email
        assert body["user"]["accountId"] == user.id
        assert before <= body["authTime"] <= int(time.time() * 1000)
        assert body["expiresAt"] - body["authTime"] == 12 * 3600 * 1000
        listed = await user.site.client(body["token"]).get(AT)
        assert listed.status_code == 200
        assert response.headers["cache-control"] == "no-store"

    @pytest.mark.one_store
    async def test_a_stranger_learns_nothing_of_who_has_an_account(
        self, user: Owner, site: Site
    ) -> None:
        """Unknown user, wrong password, no password at all: the same answer, the same work."""
        without = await site.account()
        texts = []
        for email in (user.email, "nobody@example.org", without.email):
            refused = await login(site, email, "wrong")
            assert_error(refused, 401, "AUTH_INVALID")
            assert "set-cookie" not in refused.headers
            texts.append(refused.text)
        assert len(set(texts)) == 1
        hasher = RecordingHasher()
        sessions = DashboardSessions(site.database, SECRET, hasher=hasher)
        for email in (user.email, "nobody@example.org", without.email):
            with pytest.raises(ApiError, match="email or the password is wrong"):
                await sessions.log_in(email, "wrong")
        assert len(hasher.verified) == 3
        assert hasher.verified[1] == hasher.verified[2] != hasher.verified[0]

    @pytest.mark.one_store
    async def test_the_service_hashes_at_full_cost(self, user: Owner) -> None:
        """RFC 9106's low-memory profile, unless a test injects another hasher."""
        database = user.site.database
        before = await users.by_email(database, user.email)
        assert before is not None
        link = await new_password_link(database, before.id, "http://x")
        sessions = DashboardSessions(database, SECRET)
        await sessions.reset_password(urlsplit(link.url).fragment, "a quite different phrase")
        stored = await users.by_email(database, user.email)
        assert stored is not None
        assert str(stored.password_hash).startswith("$argon2id$v=19$m=65536,t=3,p=4$")
        assert Options().password_hasher is passwords.HASHER

    async def test_nobody_s_hash_costs_as_much_as_a_real_one(self) -> None:
        """The stand-in has the parameters that real hashes have, and can be verified at all."""
        hasher = RecordingHasher()
        assert not passwords.matches(None, "x", hasher)
        stand_in, real = hasher.verified[0].split("$"), passwords.hashed("x").split("$")
        assert stand_in[1:4] == real[1:4]
        assert [len(part) for part in stand_in] == [len(part) for part in real]
        assert stand_in[1] == "argon2id"
        assert not passwords.matches(None, "x")
        assert not passwords.matches(None, "")
        assert passwords.matches(passwords.hashed("x"), "x")
        assert not passwords.matches(passwords.hashed("x"), "X")
        assert not passwords.matches("not a hash", "x")

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"email": "a@b"},
            {"email": ["a@b"], "password": "x"},
            {"email": "a@b", "password": None},
            {"email": "a\u0000@b", "password": "x"},
            {"email": "a@b" * 200, "password": "x"},
        ],
    )
    async def test_a_bad_body(self, site: Site, user: Owner, body: Any) -> None:
        assert_error(await site.client().post(f"{V1}/auth/login", json=body), 400)

    @pytest.mark.one_store
    @pytest.mark.parametrize("password", ["", "\u0000", "é" * 10, "x" * 100_000])
    async def test_an_odd_password_is_only_wrong(
        self, site: Site, user: Owner, password: str
    ) -> None:
        assert_error(await login(site, user.email, password), 401, "AUTH_INVALID")


class TestLife:
    async def test_reauthenticating_makes_it_recent_again(self, user: Owner) -> None:
        stale = await dashboard(user, age=601)
        path = f"{V1}/daemons/machine_x/revoke"
        assert_error(await stale.post(path), 403, "RECENT_LOGIN_REQUIRED")
        refused = await stale.post(f"{V1}/auth/reauthenticate", json={"password": "wrong"})
        assert_error(refused, 401, "AUTH_INVALID")
        assert_error(await stale.post(path), 403, "RECENT_LOGIN_REQUIRED")
        renewed = await stale.post(f"{V1}/auth/reauthenticate", json={"password": PASSWORD})
        assert renewed.status_code == 200
        assert_error(await user.site.client(renewed.json()["token"]).post(path), 404)
        assert renewed.json()["authTime"] > time.time() * 1000 - 60_000

    async def test_reauthenticating_does_not_make_it_live_longer(self, user: Owner) -> None:
        first = await logged_in(user, age=3600)
        page = user.site.client(first.token)
        renewed = await page.post(f"{V1}/auth/reauthenticate", json={"password": PASSWORD})
        assert renewed.json()["expiresAt"] // 1000 == first.expires_at // 1000

    async def test_recent_is_600_seconds(self, user: Owner) -> None:
        """docs/access.md, Sessions: `authTime` at most 600 s old."""
        path = f"{V1}/daemons/machine_x/revoke"
        assert_error(await (await dashboard(user, age=590)).post(path), 404)
        assert_error(
            await (await dashboard(user, age=601)).post(path), 403, "RECENT_LOGIN_REQUIRED"
        )

    async def test_recent_is_a_setting(self, start_site: StartSite) -> None:
        owner = await person(await start_site(recent_login=5))
        path = f"{V1}/daemons/machine_x/revoke"
        assert_error(await (await dashboard(owner, age=6)).post(path), 403, "RECENT_LOGIN_REQUIRED")

    async def test_a_time_to_come_is_not_recent(self, user: Owner) -> None:
        """A node whose clock is ahead must not make a session recent for longer."""
        path = f"{V1}/daemons/machine_x/revoke"
        ahead = await dashboard(user, age=-3600)
        assert_error(await ahead.post(path), 403, "RECENT_LOGIN_REQUIRED")

    async def test_logging_out_ends_every_token_at_once(self, user: Owner) -> None:
        first = (await logged_in(user)).token
        other = (await logged_in(user)).token
        page = user.site.client(first)
        renewed = await page.post(f"{V1}/auth/reauthenticate", json={"password": PASSWORD})
        second = renewed.json()["token"]
        for token in (first, second, other):
            assert (await user.site.client(token).get(AT)).status_code == 200
        out = await page.post(f"{V1}/auth/logout")
        assert out.json() == {"success": True}
        assert f"{COOKIE}=; Path=/; Max-Age=0" in out.headers["set-cookie"]
        for token in (first, second):
            assert_error(await user.site.client(token).get(AT), 401, "AUTH_INVALID")
        assert (await user.site.client(other).get(AT)).status_code == 200

    async def test_logging_out_holds_on_every_node_at_once(
        self, tmp_path: Path, postgresql: PostgreSQL
    ) -> None:
        first = Site(settings(tmp_path, postgresql))
        second = Site(first.settings)
        await first.start()
        await second.start()
        try:
            owner = await person(first)
            token = (await logged_in(owner)).token
            assert (await second.client(token).get(AT)).status_code == 200
            assert (await first.client(token).post(f"{V1}/auth/logout")).status_code == 200
            assert_error(await second.client(token).get(AT), 401, "AUTH_INVALID")
        finally:
            await first.close()
            await second.close()

    async def test_it_expires_after_twelve_hours(self, database: Database, clock: Clock) -> None:
        account = await new_account(database, password_hash=CHEAP_HASH)
        sessions = DashboardSessions(database, SECRET, clock)
        authenticator = Authenticator(database, sessions, clock)
        begun = await sessions.log_in(account.email, PASSWORD)
        clock.passes(12 * 3600 - 1)
        principal = await authenticator.principal(begun.token)
        assert (principal.kind, principal.account_id) == ("session", account.id)
        renewed = await sessions.reauthenticate(principal, PASSWORD)
        clock.passes(1)
        for token in (begun.token, renewed.token):
            with pytest.raises(ApiError) as refused:
                await authenticator.principal(token)
            assert refused.value.code == "AUTH_INVALID"


def _part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


@pytest.mark.one_store
class TestForgery:
    @pytest.mark.parametrize(
        "forge",
        [
            "another signature",
            "a later authTime",
            "another account",
            "alg none",
            "alg none, capital",
            "no signature",
            "another key",
            "the key for sealing",
            "another issuer",
            "another algorithm",
            "an unknown session",
            "no session",
            "two dots more",
            "over the length that is read",
        ],
    )
    async def test_a_token_that_the_service_did_not_make(self, user: Owner, forge: str) -> None:
        """docs/access.md, Credentials: malformed, key or JWT: 401 AUTH_INVALID."""
        token = (await logged_in(user)).token
        header, payload, signature = token.split(".")
        claims = jwt.decode(token, options={"verify_signature": False})
        secret = secret_key(user.site.settings.secret_key, user.site.settings.data_dir)
        key = derived(secret, "sessions")
        other = _part(claims | {"account": "acct_other"})
        forged = {
            "another signature": f"{header}.{payload}.{signature.swapcase()}",
            "a later authTime": f"{header}.{_part(claims | {'authTime': 9e12})}.{signature}",
            "another account": f"{header}.{other}.{signature}",
            "alg none": f"{_part({'alg': 'none', 'typ': 'JWT'})}.{payload}.",
            "alg none, capital": f"{_part({'alg': 'None', 'typ': 'JWT'})}.{payload}.{signature}",
            "no signature": f"{header}.{payload}.",
            "another key": jwt.encode(claims, derived("another", "sessions"), "HS256"),
            "the key for sealing": jwt.encode(claims, derived(secret, "sealing"), "HS256"),
            "another issuer": jwt.encode(claims | {"iss": "else"}, key, "HS256"),
            "another algorithm": jwt.encode(claims, key * 2, "HS512"),
            "an unknown session": jwt.encode(claims | {"sid": "session_x"}, key, "HS256"),
            "no session": jwt.encode({k: v for k, v in claims.items() if k != "sid"}, key, "HS256"),
            "two dots more": token + "..",
            "over the length that is read": jwt.encode(claims | {"x": "x" * 5000}, key, "HS256"),
        }[forge]
        assert (await user.site.client(token).get(AT)).status_code == 200
        assert_error(await user.site.client(forged).get(AT), 401, "AUTH_INVALID")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"sid": 5},
            {"sid": None},
            {"sid": ["session_x"]},
            {"sid": {"x": 1}},
            {"sid": "session_\0"},
            {"sid": "session_x\n"},
            {"sub": "user_\ud800"},
            {"account": 7},
            {"account": ""},
            {"authTime": "now"},
            {"authTime": [1]},
            {"exp": 1e400},
        ],
        ids=str,
    )
    async def test_a_claim_of_another_type(self, user: Owner, wrong: dict[str, Any]) -> None:
        """docs/access.md: malformed credentials are 401, also ones with our signature."""
        token = (await logged_in(user)).token
        claims = jwt.decode(token, options={"verify_signature": False})
        chosen = user.site.settings
        key = derived(secret_key(chosen.secret_key, chosen.data_dir), "sessions")
        signed = jwt.encode(claims | wrong, key, "HS256")
        assert_error(await user.site.client(signed).get(AT), 401, "AUTH_INVALID")


HTTPS = {"X-Forwarded-Proto": "https"}
PAGE = {"X-Outrider-Page-Secret": PAGE_SECRET}


def set_cookies(response: httpx.Response) -> str:
    """Return the `Cookie` header of a browser that got this response."""
    return response.headers["set-cookie"].partition(";")[0]


class TestCookie:
    async def test_its_attributes(self, user: Owner) -> None:
        """docs/access.md, Sessions: HttpOnly, SameSite=Strict, Secure under https."""
        cookie = (await login(user.site, user.email)).headers["set-cookie"]
        name, *attributes = cookie.split("; ")
        assert name.startswith(f"{COOKIE}=eyJ")
        assert attributes == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]

    @pytest.mark.parametrize(
        ("base", "start"),
        [("", "__Host-outrider_session=eyJ"), ("/tools", "__Secure-outrider_session=eyJ")],
    )
    async def test_with_https_it_is_secure_and_its_name_has_a_prefix(
        self, start_site: StartSite, base: str, start: str
    ) -> None:
        site = await start_site(trusted_proxies="127.0.0.1", base_path=base)
        owner = await person(site)
        begun = await login(site, owner.email, headers=HTTPS | PAGE)
        cookie = begun.headers["set-cookie"]
        assert cookie.startswith(start)
        assert cookie.endswith(
            f"; Path={base or '/'}; Max-Age=43200; HttpOnly; SameSite=Strict; Secure"
        )
        client = site.client()
        page = HTTPS | PAGE | {"Cookie": set_cookies(begun)}
        assert (await client.get(AT, headers=page)).status_code == 200
        for other in (COOKIE, f"__Host-x{COOKIE}"):
            unprefixed = page | {"Cookie": f"{other}={set_cookies(begun).partition('=')[2]}"}
            assert (await client.get(AT, headers=unprefixed)).status_code == 401
        plain = await login(site, owner.email)
        assert plain.headers["set-cookie"].startswith(f"{COOKIE}=")
        assert "Secure" not in plain.headers["set-cookie"]

    async def test_a_stranger_s_word_about_https_is_ignored(self, user: Owner) -> None:
        answer = await login(user.site, user.email, headers=HTTPS)
        assert "Secure" not in answer.headers["set-cookie"]

    async def _page(self, user: Owner) -> httpx.AsyncClient:
        page = user.site.client()
        page.headers.update(await page_headers(user))
        page.headers["Cookie"] = f"other=1; {page.headers['Cookie']}; more=2"
        return page

    async def test_without_the_page_secret_of_its_login_it_is_worth_nothing(
        self, user: Owner
    ) -> None:
        """Servers at all ports of the host get it."""
        site = user.site
        begun = await login(site, user.email, headers=PAGE)
        cookie = set_cookies(begun)
        client = site.client()
        good = {"Cookie": cookie, **PAGE}
        assert (await client.get(AT, headers=good)).status_code == 200
        own = {"Sec-Fetch-Site": "same-origin", "Origin": site.url}
        for secret in (
            None,
            "",
            "x" * 40,
            PAGE_SECRET[:-1],
            PAGE_SECRET + "x",
            PAGE_SECRET.upper(),
        ):
            headers = good | own | {"X-Outrider-Page-Secret": secret or ""}
            if secret is None:
                del headers["X-Outrider-Page-Secret"]
            assert_error(await client.get(AT, headers=headers), 401, "AUTH_INVALID")
            refused = await client.post(f"{V1}/auth/logout", json={}, headers=headers)
            assert_error(refused, 401, "AUTH_INVALID")
        for header in (bearer(cookie.partition("=")[2]), bearer(PAGE_SECRET)):
            assert_error(await client.get(AT, headers=header | PAGE), 401, "AUTH_INVALID")
        assert (await client.get(AT, headers=good)).status_code == 200

    async def test_a_login_without_a_page_secret_sets_one_that_nothing_can_use(
        self, user: Owner
    ) -> None:
        cookie = set_cookies(await login(user.site, user.email))
        for secret in ({}, PAGE, {"X-Outrider-Page-Secret": ""}):
            answer = await user.site.client().get(AT, headers=secret | {"Cookie": cookie})
            assert_error(answer, 401, "AUTH_INVALID")

    async def test_a_program_s_token_is_no_cookie(self, user: Owner) -> None:
        begun = await logged_in(user)
        answer = await user.site.client().get(AT, headers=page_of(begun.token))
        assert_error(answer, 401, "AUTH_INVALID")

    async def test_a_token_of_a_release_that_had_one_for_both_asks_to_log_in_again(
        self, user: Owner
    ) -> None:
        claims = jwt.decode((await logged_in(user)).token, options={"verify_signature": False})
        del claims["page"]
        chosen = user.site.settings
        key = derived(secret_key(chosen.secret_key, chosen.data_dir), "sessions")
        old = jwt.encode(claims, key, "HS256")
        client = user.site.client()
        refused = await client.get(AT, headers=page_of(old))
        assert_error(refused, 401, "AUTH_INVALID")
        assert "log in again" in refused.json()["error"]
        assert_error(await client.get(AT, headers=bearer(old)), 401, "AUTH_INVALID")

    async def test_a_page_of_such_a_release_is_told_to_be_reloaded(self, user: Owner) -> None:
        link = user.site.links.issue(user.email)
        own = {"Origin": user.site.url}
        for path, body in (
            ("login", {"email": user.email, "password": PASSWORD}),
            ("link", {"token": link}),
        ):
            client = user.site.client()
            refused = await client.post(f"{V1}/auth/{path}", json=body, headers=own)
            assert_error(refused, 400)
            assert "reload" in refused.json()["error"]
            let_in = await client.post(f"{V1}/auth/{path}", json=body, headers=own | PAGE)
            assert let_in.status_code == 200, let_in.text

    async def test_other_cookies_of_its_name_lock_nobody_out(self, user: Owner) -> None:
        """Another port may set any, with a longer path, which browsers send first."""
        site = user.site
        begun = await login(site, user.email, headers=PAGE)
        cookie, own = set_cookies(begun), {"Sec-Fetch-Site": "same-origin"}
        stranger = await person(site)
        foreign = set_cookies(
            await login(site, stranger.email, headers=PAGE | {"X-Outrider-Page-Secret": "y" * 40})
        )
        junk = [f"{COOKIE}=x", f"{COOKIE}=", f"{COOKIE}=eyJhbGciOiJIUzI1NiJ9.e30.x", foreign] * 20
        for header in ("; ".join([*junk, cookie]), "; ".join([cookie, *junk])):
            page = {"Cookie": header, **PAGE}
            answer = await site.client().get(f"{V1}/account", headers=page)
            assert answer.json()["id"] == user.id
            changed = await site.client().post(
                f"{V1}/auth/reauthenticate",
                json={"password": PASSWORD},
                headers=page | own,
            )
            assert changed.status_code == 200, changed.text

    async def test_of_several_of_one_session_the_latest_login_counts(self, user: Owner) -> None:
        """An old one that another port has kept does not make the login stale again."""
        old = await page_headers(user, age=3600)
        own = {"Sec-Fetch-Site": "same-origin"}
        client = user.site.client()
        renewed = await client.post(
            f"{V1}/auth/reauthenticate", json={"password": PASSWORD}, headers=old | own
        )
        assert renewed.status_code == 200, renewed.text
        revoke = f"{V1}/daemons/machine_x/revoke"
        assert_error(
            await client.post(revoke, json={}, headers=old | own), 403, "RECENT_LOGIN_REQUIRED"
        )
        both = old | own | {"Cookie": f"{old['Cookie']}; {set_cookies(renewed)}"}
        assert_error(await client.post(revoke, json={}, headers=both), 404)

    async def test_both_kinds_of_a_session_end_with_it(self, user: Owner) -> None:
        begun = await login(user.site, user.email, headers=PAGE)
        program = user.site.client(begun.json()["token"])
        page = {"Cookie": set_cookies(begun), **PAGE}
        assert (await program.post(f"{V1}/auth/logout")).status_code == 200
        assert_error(await program.get(AT), 401, "AUTH_INVALID")
        assert_error(await user.site.client().get(AT, headers=page), 401, "AUTH_INVALID")

    async def test_it_reads_from_anywhere(self, user: Owner) -> None:
        page = await self._page(user)
        assert (await page.get(AT)).status_code == 200
        assert (await page.get(AT, headers={"Sec-Fetch-Site": "cross-site"})).status_code == 200

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        ("headers", "let_in"),
        [
            ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}, True),
            ({"Content-Type": "Application/JSON; charset=utf-8", "Origin": "<own>"}, True),
            ({"Content-Type": "application/json"}, False),
            ({"Sec-Fetch-Site": "same-origin"}, False),
            ({"Content-Type": "text/plain", "Sec-Fetch-Site": "same-origin"}, False),
            (
                {
                    "Content-Type": "application/x-www-form-urlencoded",
                    "Sec-Fetch-Site": "same-origin",
                },
                False,
            ),
            ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, False),
            ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, False),
            ({"Content-Type": "application/json", "Sec-Fetch-Site": "none"}, False),
            ({"Content-Type": "application/json", "Origin": "https://evil.example"}, False),
            ({"Content-Type": "application/json", "Origin": "null"}, False),
            ({"Content-Type": "application/json", "Origin": ""}, False),
            # The one that pages cannot set decides.
            (
                {
                    "Content-Type": "application/json",
                    "Origin": "<own>",
                    "Sec-Fetch-Site": "cross-site",
                },
                False,
            ),
        ],
    )
    async def test_it_changes_only_for_this_site_s_own_pages(
        self, user: Owner, headers: dict[str, str], let_in: bool
    ) -> None:
        page = await self._page(user)
        if headers.get("Origin") == "<own>":
            headers = headers | {"Origin": user.site.url}
        answer = await page.post(f"{V1}/auth/enroll/code", headers=headers, content="{}")
        if let_in:
            assert answer.status_code == 200, answer.text
        else:
            assert_error(answer, 403, "AUTH_FORBIDDEN")

    async def test_the_header_wins(self, user: Owner) -> None:
        """A program that sends its credential is not asked where it comes from."""
        page = await self._page(user)
        key = {"Authorization": f"Bearer {user.key}"}
        assert_error(await page.post(f"{V1}/auth/enroll/code", headers=key), 403, "AUTH_FORBIDDEN")
        assert_error(await page.get(AT, headers=bearer("rubbish")), 401, "AUTH_INVALID")
        assert (await page.get(f"{V1}/account", headers=key)).json()["keys"][0]["prefix"]

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        "cookie", [f"{COOKIE}=", f"{COOKIE}=rubbish", f"{COOKIE}", f"{COOKIE}=eyJ.é"]
    )
    async def test_a_cookie_that_does_not_work(self, site: Site, user: Owner, cookie: str) -> None:
        answer = await site.client().get(AT, headers={b"Cookie": cookie.encode()})
        assert_error(answer, 401, "AUTH_INVALID")

    async def test_a_cookie_of_another_name(self, site: Site, user: Owner) -> None:
        answer = await site.client().get(AT, headers={"Cookie": f"x{COOKIE}=eyJ"})
        assert_error(answer, 401, "AUTH_REQUIRED")

    @pytest.mark.one_store
    @pytest.mark.parametrize("path", ["login", "link", "enroll", "device", "device/token"])
    async def test_another_site_s_page_may_not_log_its_visitor_in(
        self, site: Site, user: Owner, path: str
    ) -> None:
        """Else its visitor would let machines into an account of the page's owner."""
        body = json.dumps({"email": user.email, "password": PASSWORD})
        for foreign in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
        ):
            answer = await site.client().post(
                f"{V1}/auth/{path}", content=body, headers=foreign | {"Content-Type": "text/plain"}
            )
            assert_error(answer, 403, "AUTH_FORBIDDEN")
            assert "set-cookie" not in answer.headers
        own = await login(site, user.email, headers=PAGE | {"Sec-Fetch-Site": "same-origin"})
        assert own.status_code == 200
