"""What whoever has only the dashboard's cookie can do: a browser sends it to every port."""

import httpx

from tests.rig.errors import assert_error
from tests.rig.people import PAGE_SECRET, V1, login
from tests.security.target import Account, Target

COMMAND = f"{V1}/auth/enroll/code"
"""A change: it lets a machine into the account."""


async def cookie_of(target: Target, account: Account, secret: str = PAGE_SECRET) -> str:
    """Log a page in; return the `Cookie` header that its browser sends to every port."""
    headers = {"X-Outrider-Page-Secret": secret}
    begun = await login(target.site, account.email, account.password, headers=headers)
    assert begun.status_code == 200, begun.text
    return begun.headers["set-cookie"].partition(";")[0]


async def test_a_cookie_without_its_page_is_worth_nothing(target: Target) -> None:
    account = await target.account()
    cookie = await cookie_of(target, account)
    token = cookie.partition("=")[2]
    own = {"Origin": target.url, "Sec-Fetch-Site": "same-origin"}
    for headers in (
        {"Cookie": cookie},
        {"Cookie": cookie, **own},
        {"Authorization": f"Bearer {token}"},
        {"Cookie": cookie, "Authorization": f"Bearer {token}", **own},
        {"Cookie": cookie, "X-Outrider-Page-Secret": token, **own},
        {"Cookie": cookie, "X-Outrider-Page-Secret": "x" * len(PAGE_SECRET), **own},
    ):
        client = target.site.client()
        for path in ("account", "daemons", "events", "approvals"):
            refused = await client.get(f"{V1}/{path}", headers=headers)
            assert_error(refused, 401, "AUTH_INVALID")
        refused = await client.post(COMMAND, json={}, headers=headers)
        assert refused.status_code in {401, 403}, refused.text
        handshake = headers | {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            "Origin": target.url,
        }
        socket = await client.get(f"{V1}/daemons/machine_x/terminals/build", headers=handshake)
        assert_error(socket, 401, "AUTH_INVALID")
    await _is_served(target, account, cookie)


async def test_a_user_can_log_in_beside_cookies_that_others_have_set(target: Target) -> None:
    """A server at another port sets ones with a longer path, which come first."""
    account, other = await target.account(), await target.account()
    cookie = await cookie_of(target, account)
    name = cookie.partition("=")[0]
    theirs = await cookie_of(target, other, "their-own-page-secret-0123456789abcdef")
    junk = [f"{name}=", f"{name}=x", f"{name}=eyJhbGciOiJIUzI1NiJ9.e30.x", theirs] * 20
    await _is_served(target, account, "; ".join([*junk, cookie]))
    await _is_served(target, account, "; ".join([cookie, *junk]))


async def test_many_cookies_do_not_slow_down_other_clients(target: Target) -> None:
    account = await target.account()
    cookie = await cookie_of(target, account)
    many = "; ".join([cookie[:-4] + "AAAA"] * 150)
    headers = {"Cookie": many, "X-Outrider-Page-Secret": PAGE_SECRET}

    async def attack() -> None:
        client = target.site.client()
        for _ in range(300):
            assert_error(await client.get(f"{V1}/account", headers=headers), 401, "AUTH_INVALID")

    await target.healthy_meanwhile(attack())


async def _is_served(target: Target, account: Account, cookie: str) -> None:
    page = {"Cookie": cookie, "X-Outrider-Page-Secret": PAGE_SECRET}
    served: httpx.Response = await target.site.client().get(f"{V1}/account", headers=page)
    assert served.status_code == 200, served.text
    assert served.json()["id"] == account.id
