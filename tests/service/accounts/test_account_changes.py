"""What the operator changes of an account, or deletes, holds on a running service at once.

Holds docs/access.md, "Accounts".
"""

import time

import pytest
from sqlalchemy import func, select

from outrider.contract.frames import CloseCode
from outrider.service.accounts.account_changes import AccountChanges
from outrider.service.accounts.credentials import digest
from outrider.service.accounts.store import account_changes, accounts, usage
from outrider.service.database import tables
from outrider.service.database.engine import Database
from outrider.service.machines.store import machines
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, login, person
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

AT = f"{V1}/daemons"


def now() -> int:
    return time.time_ns() // 1_000_000


async def remnants(database: Database, owner: Owner, user_id: str) -> dict[str, int]:
    """Return how many rows of each table are of the account, where there are any."""
    found: dict[str, int] = {}
    async with database.read() as connection:
        for name, table in tables.metadata.tables.items():
            owners = [
                table.c[column] == value
                for column, value in (
                    ("account_id", owner.id),
                    ("user_id", user_id),
                    ("principal", user_id),
                )
                if column in table.c
            ]
            if name == "accounts":
                owners = [table.c.id == owner.id]
            for condition in owners:
                query = select(func.count()).select_from(table).where(condition)
                count = await connection.scalar(query)
                if count:
                    found[name] = count
    return found


async def deliveries(database: Database, webhook_id: str) -> int:
    table = tables.deliveries
    query = select(func.count()).select_from(table).where(table.c.webhook_id == webhook_id)
    async with database.read() as connection:
        return int(await connection.scalar(query))


async def furnished(owner: Owner) -> str:
    """Give an account something of everything; return the id of its webhook."""
    page = await dashboard(owner)
    made = await page.post(f"{V1}/webhooks", json={"url": "http://127.0.0.1:9/", "events": ["*"]})
    webhook: str = made.json()["id"]
    for _ in range(3):
        await page.post(f"{V1}/webhooks/{webhook}/test")
    await login(owner.site, owner.email)
    await page.post(f"{V1}/auth/enroll/code", headers={"Idempotency-Key": "k"}, json={})
    await owner.api.post(f"{AT}/machine_x/terminal", json={}, headers={"Idempotency-Key": "k"})
    device = await owner.site.client().post(
        f"{V1}/auth/device", json={"hostname": "h", "platform": "p"}
    )
    body = {"userCode": device.json()["userCode"]}
    assert (await page.post(f"{V1}/auth/device/approve", json=body)).status_code == 200
    return webhook


class TestDeletion:
    async def test_nothing_of_the_account_is_left(self, site: Site, user: Owner) -> None:
        (account,) = await accounts.every(site.database, user.id)
        webhook = await furnished(user)
        await user.machine(session())
        page = await dashboard(user)
        before = await remnants(site.database, user, account.user_id)
        assert before.keys() >= {
            *("accounts", "users", "api_keys", "machines", "sessions", "webhooks", "events"),
            *("usage", "known_addresses", "enrolment_codes", "device_codes", "idempotency_keys"),
        }
        assert await deliveries(site.database, webhook) >= 3
        await accounts.remove(site.database, user.id, now())
        after = await remnants(site.database, user, account.user_id)
        assert after.keys() - {"audit", "account_changes"} == set()
        assert await deliveries(site.database, webhook) == 0
        assert_error(await page.get(f"{V1}/account"), 401, "AUTH_INVALID")
        assert_error(await login(site, user.email), 401, "AUTH_INVALID")

    async def test_its_machine_is_closed_out_and_its_key_stops(
        self, site: Site, user: Owner
    ) -> None:
        enrolled = await user.enrolls()
        machine = await user.machine(session(), enrolled=enrolled)
        other = await person(site)
        bystander = await other.machine(session())
        assert (await user.api.get(AT)).status_code == 200
        await accounts.remove(site.database, user.id, now())
        assert (await machine.closed())[0] == CloseCode.UNAUTHORIZED

        async def stopped() -> bool:
            return (await user.api.get(AT)).status_code == 401

        await eventually(stopped)
        assert await machines.by_token(site.database, digest(enrolled.token)) is None
        assert bystander.is_open
        listed = (await other.api.get(AT)).json()["daemons"]
        assert [daemon["id"] for daemon in listed] == [bystander.id]

    async def test_one_that_was_cut_short_can_be_repeated(self, site: Site, user: Owner) -> None:
        await furnished(user)
        (account,) = await accounts.every(site.database, user.id)
        for _ in range(2):
            await accounts.remove(site.database, user.id, now())
        after = await remnants(site.database, user, account.user_id)
        assert after.keys() - {"audit", "account_changes"} == set()


class TestPlan:
    async def test_a_larger_plan_holds_at_once(self, site: Site) -> None:
        async with site.visit():
            owner = await person(site, "free")
            month = time.strftime("%Y-%m", time.gmtime())
            await usage.set_aside(site.database, owner.id, month, None, most=1000)
            assert_error(await owner.api.get(AT), 429, "API_LIMIT_EXCEEDED")
            await accounts.set_plan(site.database, owner.id, "pro", now())

            async def admitted() -> bool:
                return (await owner.api.get(AT)).status_code == 200

            await eventually(admitted)

    async def test_a_smaller_plan_holds_at_once(self, site: Site) -> None:
        """Though thousands of calls were set aside on the larger one."""
        async with site.visit():
            owner = await person(site, "enterprise")
            month = time.strftime("%Y-%m", time.gmtime())
            await usage.set_aside(site.database, owner.id, month, None, most=1000)
            assert (await owner.api.get(AT)).status_code == 200
            await accounts.set_plan(site.database, owner.id, "free", now())

            async def exceeded() -> bool:
                return (await owner.api.get(AT)).status_code == 429

            await eventually(exceeded)


class TestChanges:
    async def test_each_change_is_found_once(self, database: Database) -> None:
        found: list[str] = []

        async def changed(account_id: str) -> None:
            found.append(account_id)

        async def change(account_id: str, at: int) -> None:
            async with database.begin() as transaction:
                await account_changes.note(transaction, account_id, at)

        changes = AccountChanges(database, changed)
        await change("acct_old", 1000)
        await changes.start()
        await changes.poll()
        assert found == []
        await change("acct_a", 1000)
        await change("acct_a", 1000)  # in the same millisecond
        await changes.poll()
        await changes.poll()
        assert found == ["acct_a"]
        await change("acct_a", 500)  # by a clock that is late
        await changes.poll()
        assert found == ["acct_a", "acct_a"]

    async def test_what_fails_is_found_again(self, database: Database) -> None:
        found: list[str] = []

        async def changed(account_id: str) -> None:
            found.append(account_id)
            if len(found) == 1:
                raise OSError("the database is unavailable")

        changes = AccountChanges(database, changed)
        await database.migrate()
        await changes.start()
        async with database.begin() as transaction:
            await account_changes.note(transaction, "acct_a", 1000)
        with pytest.raises(OSError, match="unavailable"):
            await changes.poll()
        await changes.poll()
        assert found == ["acct_a", "acct_a"]

    async def test_they_are_kept_for_a_day(self, database: Database) -> None:
        day = 86_400_000
        async with database.begin() as transaction:
            await account_changes.note(transaction, "acct_a", day)
            await account_changes.note(transaction, "acct_b", 2 * day + 1)
        assert await account_changes.recent(database) == {"acct_b": 2 * day + 1}
