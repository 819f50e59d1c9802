"""Enrollment: one-time codes and device codes, each good for one machine."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from outrider.contract.enrollment import (
    DEVICE_CODE_SECONDS,
    POLL_SECONDS,
    EnrollRequest,
    MachineInfo,
)
from outrider.contract.errors import ApiError
from outrider.contract.frames import CloseCode
from outrider.contract.ids import is_id
from outrider.service.accounts.credentials import digest
from outrider.service.accounts.enrollment import CODE_SECONDS, Enrollment
from outrider.service.database.engine import Database
from outrider.service.machines.store import machines
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, person
from tests.rig.site import Owner, Site, new_account

pytestmark = pytest.mark.asyncio(loop_scope="session")

MACHINE = {"hostname": "bench", "platform": "linux", "version": "1", "nickname": None}


async def device(site: Site, **machine: Any) -> dict[str, Any]:
    """Ask for a device code."""
    answer = await site.client().post(f"{V1}/auth/device", json=MACHINE | machine)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def decide(owner: Owner, user_code: str, action: str = "approve") -> Any:
    page = await dashboard(owner)
    return await page.post(
        f"{V1}/auth/device/approve", json={"userCode": user_code, "action": action}
    )


class TestOneTimeCode:
    async def test_one_of_fifty_wins(self, user: Owner) -> None:
        """A code works once, even when two use it at the same moment."""
        code = (await (await dashboard(user)).post(f"{V1}/auth/enroll/code")).json()["code"]
        client = user.site.client()
        answers = await asyncio.gather(
            *(client.post(f"{V1}/auth/enroll", json=MACHINE | {"code": code}) for _ in range(50))
        )
        assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 49}
        won = next(answer.json() for answer in answers if answer.status_code == 200)
        assert is_id("machine", won["daemonId"])
        row = await machines.by_token(user.site.database, digest(won["token"]))
        assert row is not None
        assert row.account_id == user.id

    async def test_it_may_be_typed_as_people_type(self, user: Owner) -> None:
        page = await dashboard(user)
        code = (await page.post(f"{V1}/auth/enroll/code", json={"nickname": "Lab"})).json()["code"]
        typed = f" {code.replace('-', ' ').lower()} "
        answer = await user.site.client().post(f"{V1}/auth/enroll", json=MACHINE | {"code": typed})
        assert answer.json()["nickname"] == "Lab"

    async def test_it_is_good_for_ten_minutes(self, database: Database, clock: Clock) -> None:
        enrollment = Enrollment(database, clock)
        account = (await new_account(database)).id
        for late in (False, True):
            code = await enrollment.new_code(account, None)
            clock.passes(CODE_SECONDS - (0 if late else 1))
            request = EnrollRequest(hostname="h", platform="p", code=code.code)
            if late:
                with pytest.raises(ApiError, match="older than 10 minutes"):
                    await enrollment.redeem(request)
            else:
                await enrollment.redeem(request)

    async def test_enrolling_again_keeps_the_id_and_ends_the_old_token(self, user: Owner) -> None:
        first = await user.enrolls()
        again = await user.enrolls(daemon_id=first.daemon_id)
        assert again.daemon_id == first.daemon_id
        assert await machines.by_token(user.site.database, digest(first.token)) is None
        assert await machines.by_token(user.site.database, digest(again.token)) is not None

    async def test_another_account_s_machine_is_not_taken_over(
        self, site: Site, user: Owner
    ) -> None:
        theirs = await (await person(site)).enrolls()
        mine = await user.enrolls(daemon_id=theirs.daemon_id)
        assert mine.daemon_id != theirs.daemon_id
        assert await machines.by_token(site.database, digest(theirs.token)) is not None

    @pytest.mark.one_store
    @pytest.mark.parametrize(
        "field", [{"hostname": "a\u001b[2Jb"}, {"nickname": "a\u0000"}, {"platform": "x\n"}]
    )
    async def test_a_name_cannot_hold_what_a_terminal_acts_on(
        self, user: Owner, field: dict[str, str]
    ) -> None:
        code = (await (await dashboard(user)).post(f"{V1}/auth/enroll/code")).json()["code"]
        client, body = user.site.client(), MACHINE | {"code": code}
        assert_error(await client.post(f"{V1}/auth/enroll", json=body | field), 400)
        assert_error(await client.post(f"{V1}/auth/device", json=MACHINE | field), 400)
        assert (await client.post(f"{V1}/auth/enroll", json=body)).status_code == 200


class TestDeviceCode:
    @pytest.mark.one_store
    async def test_its_page_is_at_the_public_url(self, start_site: StartSite) -> None:
        """docs/settings.md, OUTRIDER_PUBLIC_URL: links that the service creates begin with it."""
        site = await start_site(public_url="https://outrider.example.com", base_path="/outrider")
        asked = await device(site)
        assert asked["verificationUri"] == "https://outrider.example.com/outrider/device"

    async def test_from_asking_to_the_token(self, user: Owner) -> None:
        """RFC 8628, with the names in camelCase."""
        asked = await device(user.site, nickname="Lab")
        assert asked["verificationUri"] == f"{user.site.url}/device"
        assert asked["verificationUriComplete"].endswith(f"?code={asked['userCode']}")
        assert (asked["expiresIn"], asked["interval"]) == (600, 5)
        client, body = user.site.client(), {"deviceCode": asked["deviceCode"]}
        pending = await client.post(f"{V1}/auth/device/token", json=body)
        assert_error(pending, 400, "authorization_pending")
        hasty = await client.post(f"{V1}/auth/device/token", json=body)
        assert_error(hasty, 400, "slow_down")
        shown = await (await dashboard(user)).get(
            f"{V1}/auth/device", params={"userCode": asked["userCode"].lower()}
        )
        assert (shown.json()["hostname"], shown.json()["nickname"]) == ("bench", "Lab")
        assert (await decide(user, asked["userCode"])).json() == {"success": True}
        given = await client.post(f"{V1}/auth/device/token", json=body)
        assert given.json()["nickname"] == "Lab"
        row = await machines.by_token(user.site.database, digest(given.json()["token"]))
        assert row is not None
        assert row.account_id == user.id
        used = await client.post(f"{V1}/auth/device/token", json=body)
        assert_error(used, 400, "expired_token")

    async def test_one_of_fifty_wins(self, user: Owner) -> None:
        asked = await device(user.site)
        await decide(user, asked["userCode"])
        client, body = user.site.client(), {"deviceCode": asked["deviceCode"]}
        answers = await asyncio.gather(
            *(client.post(f"{V1}/auth/device/token", json=body) for _ in range(50))
        )
        assert Counter(answer.status_code for answer in answers) == {200: 1, 400: 49}
        assert {a.json()["code"] for a in answers if a.status_code == 400} == {"expired_token"}

    async def test_what_is_shown_before_it_is_approved(self, site: Site, user: Owner) -> None:
        """Where the request came from and when, and which of the user's machines it replaces."""
        before = int(time.time() * 1000)
        mine = await user.enrolls(nickname="Lab")
        other = await person(site)
        theirs = await other.enrolls()
        page = await dashboard(user)

        async def shown(**machine: Any) -> dict[str, Any]:
            asked = await device(site, **machine)
            params = {"userCode": asked["userCode"]}
            body: dict[str, Any] = (await page.get(f"{V1}/auth/device", params=params)).json()
            return body

        new = await shown()
        assert (new["address"], new["replaces"]) == ("127.0.0.1", None)
        assert before <= new["requestedAt"] <= int(time.time() * 1000)
        again = await shown(daemonId=mine.daemon_id, nickname="another")
        assert again["replaces"] == {"id": mine.daemon_id, "nickname": "Lab"}
        foreign = await shown(daemonId=theirs.daemon_id)
        assert foreign["replaces"] is None, "it says nothing of another account's machines"

    async def test_one_of_fifty_decides(self, site: Site, user: Owner) -> None:
        asked = await device(site)
        page, other = await dashboard(user), await dashboard(await person(site))
        body = {"userCode": asked["userCode"]}
        answers = await asyncio.gather(
            *((page, other)[n % 2].post(f"{V1}/auth/device/approve", json=body) for n in range(50))
        )
        assert Counter(answer.status_code for answer in answers) == {200: 1, 404: 49}

    async def test_refused(self, user: Owner) -> None:
        asked = await device(user.site)
        await decide(user, asked["userCode"], "reject")
        body = {"deviceCode": asked["deviceCode"]}
        answer = await user.site.client().post(f"{V1}/auth/device/token", json=body)
        assert_error(answer, 400, "access_denied")
        assert_error(await decide(user, asked["userCode"]), 404)

    async def test_unknown(self, user: Owner) -> None:
        client = user.site.client()
        answer = await client.post(f"{V1}/auth/device/token", json={"deviceCode": "x"})
        assert_error(answer, 400, "expired_token")
        assert_error(await decide(user, "BCDF-GHJK"), 404)
        page = await dashboard(user)
        assert_error(await page.get(f"{V1}/auth/device", params={"userCode": "x"}), 404)
        assert_error(await page.get(f"{V1}/auth/device"), 400)
        assert_error(await decide(user, "BCDF-GHJK", "perhaps"), 400)

    async def test_its_times(self, database: Database, clock: Clock) -> None:
        enrollment, account = Enrollment(database, clock), (await new_account(database)).id
        machine = MachineInfo(hostname="h", platform="p")

        async def error_of(device_code: str) -> str | None:
            with pytest.raises(ApiError) as error:
                await enrollment.device_token(device_code)
            return error.value.code

        asked = await enrollment.authorize_device(machine, "http://x/device")
        clock.passes(1)
        assert await error_of(asked.device_code) == "authorization_pending", (
            "the first may come soon"
        )
        clock.passes(POLL_SECONDS)
        assert await error_of(asked.device_code) == "authorization_pending"
        clock.passes(POLL_SECONDS - 2)
        assert await error_of(asked.device_code) == "slow_down"
        clock.passes(DEVICE_CODE_SECONDS)
        assert await error_of(asked.device_code) == "expired_token"
        with pytest.raises(ApiError):
            await enrollment.decide_device(account, asked.user_code, approve=True)

    async def test_an_approval_expires_with_its_code(
        self, database: Database, clock: Clock
    ) -> None:
        enrollment, account = Enrollment(database, clock), (await new_account(database)).id
        asked = await enrollment.authorize_device(MachineInfo(hostname="h", platform="p"), "")
        await enrollment.decide_device(account, asked.user_code, approve=True)
        clock.passes(DEVICE_CODE_SECONDS)
        with pytest.raises(ApiError, match="expired"):
            await enrollment.device_token(asked.device_code)


class TestRevocation:
    async def test_revoke_ends_the_socket_and_the_token(self, user: Owner) -> None:
        """docs/access.md: its connection token is permanently revoked."""
        enrolled = await user.enrolls()
        machine = await user.machine(enrolled=enrolled)
        page = await dashboard(user)
        assert (await page.post(f"{V1}/daemons/{machine.id}/revoke")).status_code == 200
        assert (await machine.closed())[0] == CloseCode.UNAUTHORIZED
        assert await machines.by_token(user.site.database, digest(enrolled.token)) is None
        again = await user.enrolls(daemon_id=machine.id)
        assert (await user.machine(enrolled=again)).id == machine.id

    async def test_disconnect_ends_the_socket_and_not_the_token(self, user: Owner) -> None:
        enrolled = await user.enrolls()
        machine = await user.machine(enrolled=enrolled)
        page = await dashboard(user)
        assert (await page.post(f"{V1}/daemons/{machine.id}/disconnect")).status_code == 200
        assert (await machine.closed())[0] == CloseCode.DISCONNECTED
        assert (await user.machine(enrolled=enrolled)).id == machine.id
