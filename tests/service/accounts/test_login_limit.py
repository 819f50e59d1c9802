"""The limit on logins to one account: strangers share it, and nobody is locked out by them.

Holds docs/access.md, "Limits", which says why it is so.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
import pytest_asyncio

from outrider.service.accounts.dashboard_sessions import KNOWN_SECONDS, DashboardSessions
from outrider.service.accounts.store import users
from outrider.service.accounts.store.dashboard_sessions import Origin
from outrider.service.database.engine import Database
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import CHEAP_HASH, PASSWORD, login, person
from tests.rig.site import CHEAP_HASHER, Site, new_account

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT = 5
HOME = "203.0.113.7"


def strangers() -> Iterator[str]:
    """Return addresses that are all counted apart."""
    yield from (f"2001:db8:{n:x}::{n:x}" for n in range(1, 10_000))


@pytest_asyncio.fixture(loop_scope="session")
async def proxied(start_site: StartSite) -> Site:
    """A service behind a proxy, so that a request can come from any address."""
    return await start_site(trusted_proxies="127.0.0.1", rate_limit_login=LIMIT)


async def attempt(site: Site, email: str, password: str, address: str) -> httpx.Response:
    return await login(site, email, password, headers={"X-Forwarded-For": address})


async def test_guesses_from_ever_new_addresses_are_limited(proxied: Site) -> None:
    owner = await person(proxied)
    addresses = strangers()
    for _ in range(LIMIT):
        refused = await attempt(proxied, owner.email, "wrong", next(addresses))
        assert_error(refused, 401, "AUTH_INVALID")
    for password in ("wrong", PASSWORD):  # it tells a stranger nothing about the password
        refused = await attempt(proxied, owner.email, password, next(addresses))
        assert_error(refused, 429, "RATE_LIMITED")
        assert int(refused.headers["retry-after"]) > 0
        assert f'"login";q={LIMIT};w=3600' in refused.headers["ratelimit-policy"]
        assert '"login";r=0' in refused.headers["ratelimit"]


async def test_many_at_once_are_not_more(proxied: Site) -> None:
    owner = await person(proxied)
    addresses = strangers()
    answers = await asyncio.gather(
        *(attempt(proxied, owner.email, "wrong", next(addresses)) for _ in range(4 * LIMIT))
    )
    assert Counter(answer.status_code for answer in answers) == {401: LIMIT, 429: 3 * LIMIT}


@pytest.mark.parametrize("home", [HOME, "2001:db8:ffff::1"])
async def test_a_stranger_does_not_lock_the_user_out(proxied: Site, home: str) -> None:
    """Whoever has logged in from an address before can always do so from there."""
    owner = await person(proxied)
    assert (await attempt(proxied, owner.email, PASSWORD, home)).status_code == 200
    addresses = strangers()
    for _ in range(2 * LIMIT):
        await attempt(proxied, owner.email, "wrong", next(addresses))
    assert_error(
        await attempt(proxied, owner.email, PASSWORD, next(addresses)), 429, "RATE_LIMITED"
    )
    for _ in range(2 * LIMIT):
        assert (await attempt(proxied, owner.email, PASSWORD, home)).status_code == 200


async def test_an_address_is_known_to_the_account_that_it_logged_in_to(proxied: Site) -> None:
    """Else an account of one's own would lift the limit for all others."""
    mallory, victim = await person(proxied), await person(proxied)
    assert (await attempt(proxied, mallory.email, PASSWORD, HOME)).status_code == 200
    for _ in range(LIMIT):
        assert_error(await attempt(proxied, victim.email, "wrong", HOME), 401, "AUTH_INVALID")
    assert_error(await attempt(proxied, victim.email, PASSWORD, HOME), 429, "RATE_LIMITED")


async def test_accounts_are_counted_apart_and_unknown_ones_alike(proxied: Site) -> None:
    owner, other = await person(proxied), await person(proxied)
    addresses = strangers()
    for email in (owner.email.upper(), "nobody@example.org"):
        statuses = [
            (await attempt(proxied, email, "wrong", next(addresses))).status_code
            for _ in range(LIMIT + 1)
        ]
        assert statuses == [401] * LIMIT + [429]
    assert (await attempt(proxied, other.email, PASSWORD, next(addresses))).status_code == 200


async def test_a_new_password_makes_addresses_unknown(proxied: Site) -> None:
    """Whoever knew the old one may have logged in as well."""
    owner = await person(proxied)
    assert (await attempt(proxied, owner.email, PASSWORD, HOME)).status_code == 200
    row = await users.by_email(proxied.database, owner.email)
    assert row is not None
    await users.set_password(
        proxied.database, row.id, CHEAP_HASHER.hash("a quite different phrase")
    )
    statuses = [
        (await attempt(proxied, owner.email, "wrong", HOME)).status_code for _ in range(LIMIT + 1)
    ]
    assert statuses == [401] * (LIMIT - 1) + [429] * 2  # the login before counted as one


async def test_an_address_is_known_for_90_days(database: Database, clock: Clock) -> None:
    account = await new_account(database, password_hash=CHEAP_HASH)
    sessions = DashboardSessions(database, "a secret key of thirty-two letters", clock)
    await sessions.log_in(account.email, PASSWORD, Origin(HOME, HOME, None))
    clock.passes(KNOWN_SECONDS)
    assert await sessions.knows_address(account.email.upper(), HOME)
    clock.passes(1)
    assert not await sessions.knows_address(account.email, HOME)


async def test_of_one_user_100_addresses_are_known(database: Database) -> None:
    account = await new_account(database)
    async with database.begin() as transaction:
        for number in range(150):
            await users.remember_address(transaction, account.user_id, f"address {number}", number)
    known = [
        number
        for number in range(150)
        if await users.knows_address(database, account.email, f"address {number}", 0)
    ]
    assert known == list(range(50, 150))
