"""The monthly quota: exact at once, on two nodes, over a restart and a kill."""

import asyncio
import signal
from collections import Counter
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import update

from outrider.contract.account import PlanName
from outrider.contract.errors import ApiError
from outrider.service.accounts.quota import PLANS, Quota
from outrider.service.accounts.store import usage
from outrider.service.database import tables
from outrider.service.database.engine import Database
from tests.conftest import StartSite
from tests.rig.clock import Clock
from tests.rig.people import V1, calls, person
from tests.rig.processes import Serving
from tests.rig.site import Owner, Site, new_account
from tests.rig.waiting import TIMEOUT

pytestmark = pytest.mark.asyncio(loop_scope="session")


def this_month() -> str:
    return datetime.now(UTC).strftime("%Y-%m")


async def spent(owner: Owner, count: int) -> None:
    """Set what the account has used of this month."""
    await usage.set_aside(owner.site.database, owner.id, this_month(), None, most=count)


async def statuses(*clients: httpx.AsyncClient, count: int) -> Counter[int]:
    """Make that many requests at once, the clients in turn."""
    requests = [clients[i % len(clients)].get(f"{V1}/daemons") for i in range(count)]
    return Counter(response.status_code for response in await asyncio.gather(*requests))


async def test_fifty_at_once_for_the_last_twenty(site: Site, user: Owner) -> None:
    owner = await person(site, "free")
    await spent(owner, 980)
    assert await statuses(owner.api, count=50) == {200: 20, 429: 30}
    assert await calls(owner) == 1000


@pytest.mark.parametrize("already", [0, 1, 10])
async def test_two_nodes_share_the_last_twenty(two_nodes: tuple[Site, Site], already: int) -> None:
    """However the requests fall on the nodes, none sits on calls that the other one needs."""
    first, second = two_nodes
    owner = await person(first, "free")
    await spent(owner, 980)
    here, there = first.client(owner.key), second.client(owner.key)
    admitted = (await statuses(there, count=already))[200]
    admitted += (await statuses(here, there, count=50 - already))[200]
    assert admitted == 20


@pytest.mark.parametrize("already", [1, 19])
async def test_what_one_node_has_begun_the_other_ends(
    two_nodes: tuple[Site, Site], already: int
) -> None:
    first, second = two_nodes
    owner = await person(first, "free")
    await spent(owner, 980)
    assert await statuses(second.client(owner.key), count=already) == {200: already}
    assert (await statuses(first.client(owner.key), count=49))[200] == 20 - already


async def test_it_survives_a_restart(start_site: StartSite) -> None:
    site = await start_site()
    owner = await person(site, "free")
    assert await statuses(owner.api, count=7) == {200: 7}
    await site.stop()
    assert await usage.calls(site.database, owner.id, this_month()) == 7, "given back"
    await site.start()
    assert await statuses(owner.api, count=5) == {200: 5}
    assert await calls(owner) == 12


@pytest.mark.one_store
async def test_kill_9_loses_one_percent_at_the_most_and_admits_no_more(
    start_site: StartSite,
) -> None:
    site = await start_site()
    owner = await person(site, "free")
    await site.stop()
    admitted = 0
    for _ in range(2):
        async with (
            Serving(site.settings.data_dir, **site.addresses) as service,
            httpx.AsyncClient(
                base_url=service.url,
                headers={"Authorization": f"Bearer {owner.key}"},
                trust_env=False,
                timeout=TIMEOUT,
            ) as client,
        ):
            admitted += (await statuses(client, count=23))[200]
            service.signal(signal.SIGKILL)
            await service.ends()
    assert admitted == 46
    used = await usage.calls(site.database, owner.id, this_month())
    assert admitted <= used <= admitted + 2 * 10
    await spent(owner, 1000 - used)
    await site.start()
    assert await statuses(owner.api, count=3) == {429: 3}


@pytest.mark.parametrize("plan", ["free", "pro"])
async def test_the_month_is_the_calendar_month(
    database: Database, clock: Clock, plan: PlanName
) -> None:
    """docs/access.md, Limits: the calendar month, UTC. Retry-After leads into the next one."""
    clock.now = datetime(2026, 12, 31, 23, 59, 30, tzinfo=UTC).timestamp()
    account_id = (await new_account(database, plan)).id
    limit = PLANS[plan].calls_per_month
    assert limit is not None
    await usage.set_aside(database, account_id, "2026-12", None, most=limit - 1)
    quota = Quota(database, clock)
    await quota.spend(account_id)
    with pytest.raises(ApiError) as refused:
        await quota.spend(account_id)
    assert (refused.value.status, refused.value.code) == (429, "API_LIMIT_EXCEEDED")
    assert refused.value.retry_after == 30
    clock.passes(30)
    await quota.spend(account_id)
    assert await quota.used(account_id) == ("2027-01", 1)


async def test_a_larger_plan_holds_within_a_minute(database: Database, clock: Clock) -> None:
    account_id = (await new_account(database, "free")).id
    quota = Quota(database, clock)
    await quota.spend(account_id)
    month = (await quota.used(account_id))[0]
    await usage.set_aside(database, account_id, month, None, most=1000)
    await quota.give_back()
    with pytest.raises(ApiError, match="free plan"):
        await quota.spend(account_id)
    async with database.begin() as connection:
        await connection.execute(update(tables.accounts).values(plan="pro"))
    clock.passes(60)
    await quota.spend(account_id)


async def test_enterprise_has_no_limit(database: Database, clock: Clock) -> None:
    account_id = (await new_account(database, "enterprise")).id
    quota = Quota(database, clock)
    for _ in range(250):
        await quota.spend(account_id)
    assert (await quota.used(account_id))[1] == 250


async def test_calls_reserved_by_another_node_are_few_without_a_limit(
    database: Database, clock: Clock
) -> None:
    account_id = (await new_account(database, "enterprise")).id
    first, second = Quota(database, clock), Quota(database, clock)
    await first.spend(account_id)
    await second.spend(account_id)
    assert 2 <= (await first.used(account_id))[1] <= 502
    await second.give_back()
    assert (await first.used(account_id))[1] == 2


async def test_the_database_is_asked_seldom(database: Database, clock: Clock) -> None:
    """Calls are set aside by the percent of what is left."""
    account_id = (await new_account(database, "team")).id
    quota = Quota(database, clock)
    await quota.spend(account_id)
    month = (await quota.used(account_id))[0]
    assert await usage.calls(database, account_id, month) == 5000
    await quota.give_back()
    assert await usage.calls(database, account_id, month) == 1


async def test_what_is_given_back_is_not_given_twice(database: Database, clock: Clock) -> None:
    account_id = (await new_account(database, "team")).id
    quota = Quota(database, clock)
    await quota.spend(account_id)
    await quota.give_back()
    await quota.give_back()
    assert (await quota.used(account_id))[1] == 1


async def test_at_the_turn_of_the_month_nobody_waits_for_ever(
    database: Database, clock: Clock
) -> None:
    account_id = (await new_account(database, "free")).id
    quota = Quota(database, clock)

    async def spend() -> None:
        await quota.spend(account_id)
        clock.passes(86400)

    async with asyncio.timeout(TIMEOUT):
        await asyncio.gather(*(spend() for _ in range(50)))
    assert (await quota.used(account_id))[1] <= 50
