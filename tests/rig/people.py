"""Accounts whose user has a password, and the sessions that a password begins."""

import time
from typing import Any, Final

import httpx

from outrider.contract.account import PlanName
from outrider.service.accounts.dashboard_sessions import DashboardSessions, LoggedIn
from outrider.service.accounts.encryption import secret_key
from outrider.service.http.session_cookie import COOKIE
from tests.rig.site import CHEAP_HASHER, Owner, Site

PASSWORD: Final = "correct horse battery staple"
CHEAP_HASH: Final = CHEAP_HASHER.hash(PASSWORD)

PAGE_SECRET: Final = "a-page-secret-of-the-tests-0123456789"

V1: Final = "/api/v1"


async def person(site: Site, plan: PlanName = "enterprise") -> Owner:
    """Make an account whose user may log in with `PASSWORD`."""
    return await site.account(plan, CHEAP_HASH)


def sessions_of(site: Site, age: float = 0.0) -> DashboardSessions:
    """Return the site's own way to begin sessions, with a clock that is `age` seconds late."""
    secret = secret_key(site.settings.secret_key, site.settings.data_dir)
    return DashboardSessions(site.database, secret, lambda: time.time() - age, CHEAP_HASHER)


async def logged_in(owner: Owner, age: float = 0.0) -> LoggedIn:
    """Log the account's user in, `age` seconds ago."""
    return await sessions_of(owner.site, age).log_in(owner.email, PASSWORD)


async def page_headers(owner: Owner, age: float = 0.0) -> dict[str, str]:
    """Log the account's user in, and return what a page of the dashboard sends: cookie, secret."""
    sessions, session = sessions_of(owner.site), await logged_in(owner, age)
    return page_of(sessions.in_cookie(session.token, PAGE_SECRET))


def page_of(cookie: str) -> dict[str, str]:
    """Return the headers of a page with this value of the cookie."""
    return {"Cookie": f"{COOKIE}={cookie}", "X-Outrider-Page-Secret": PAGE_SECRET}


async def dashboard(owner: Owner, age: float = 0.0) -> httpx.AsyncClient:
    """Return a client with a session of the account's user, who logged in `age` seconds ago."""
    return owner.site.client((await logged_in(owner, age)).token)


async def login(site: Site, email: str, password: str = PASSWORD, **options: Any) -> httpx.Response:
    """Log in through the API."""
    body = {"email": email, "password": password}
    return await site.client().post(f"{V1}/auth/login", json=body, **options)


async def calls(owner: Owner) -> int:
    """Return what the account has used of its month."""
    account = (await (await dashboard(owner)).get(f"{V1}/account")).json()
    used: int = account["usage"]["calls"]
    return used
