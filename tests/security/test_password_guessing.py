"""Guessing a password: from one address, from ever new ones, and with a stolen session."""

import asyncio
from collections import Counter

import httpx

from tests.rig.errors import assert_error
from tests.rig.people import PASSWORD, login
from tests.security.conftest import StartTarget
from tests.security.target import MB, Target

V1 = "/api/v1"


async def guess(target: Target, email: str, address: str, password: str = "wrong") -> int:
    headers = {"X-Forwarded-For": address}
    return (await login(target.site, email, password, headers=headers)).status_code


async def test_from_a_thousand_addresses(start_target: StartTarget) -> None:
    """Thirty are tried in an hour, the rest refused; the user logs in all the while."""
    target = await start_target(trusted_proxies="127.0.0.1")
    account = await target.account()
    assert await guess(target, account.email, "203.0.113.7", PASSWORD) == 200
    async with target.grows_at_most(200 * MB):  # argon2 takes 64 MB for each of two at a time
        answers: Counter[int] = Counter()
        for batch in range(20):
            answers += Counter(
                await asyncio.gather(
                    *(
                        guess(target, account.email, f"2001:db8:{batch:x}:{number:x}::1")
                        for number in range(50)
                    )
                )
            )
            assert await guess(target, account.email, "203.0.113.7", PASSWORD) == 200
    assert answers[401] <= 30
    assert answers[401] + answers[429] == 1000


async def test_from_one_address(start_target: StartTarget) -> None:
    target = await start_target(rate_limit_auth="10")
    account = await target.account()
    answers = [await login(target.site, account.email, "wrong") for _ in range(30)]
    assert Counter(answer.status_code for answer in answers) == {401: 10, 429: 20}


async def test_with_a_stolen_session(target: Target) -> None:
    """It is no oracle: ten wrong guesses, also at once, end it."""
    account = await target.account()
    stolen, users = await target.login(account), await target.login(account)

    async def attempt(number: int) -> httpx.Response:
        if number % 2:
            body = {"current": f"guess {number}", "new": "a quite different phrase"}
            return await stolen.post(f"{V1}/auth/password", json=body)
        body = {"password": f"guess {number}"}
        return await stolen.post(f"{V1}/auth/reauthenticate", json=body)

    answers = await asyncio.gather(*map(attempt, range(100)))
    checked = [answer for answer in answers if answer.json()["error"] == "The password is wrong"]
    assert len(checked) == 9
    assert_error(await stolen.get(f"{V1}/account"), 401, "AUTH_INVALID")
    assert (await users.get(f"{V1}/account")).status_code == 200
