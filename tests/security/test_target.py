"""The rig itself: what the attacks rely on holds for a service that nobody attacks."""

import pytest

from tests.rig.stores import PostgreSQL
from tests.rig.waiting import TIMEOUT
from tests.security.conftest import StartTarget
from tests.security.target import MB, Target


async def test_a_target_serves_accounts_keys_sessions_and_machines(target: Target) -> None:
    account = await target.account()
    client = target.site.client(await target.key({"ide:read"}, account))
    machine = await target.machine(account=account)

    listed = (await client.get("/api/v1/daemons")).raise_for_status().json()["daemons"]
    assert [daemon["id"] for daemon in listed] == [machine.id]
    assert (await (await target.login(account)).get("/api/v1/account")).status_code == 200
    assert await target.healthy()


async def test_a_peak_is_seen_after_the_memory_was_given_back(target: Target) -> None:
    assert 20 * MB < target.rss() <= target.peak_rss() < 1000 * MB
    with pytest.raises(AssertionError, match="grew by"):
        async with target.grows_at_most(-1):
            pass


async def test_a_service_that_does_not_answer_is_not_healthy(target: Target) -> None:
    target.process.kill()
    target.process.wait(TIMEOUT)
    assert not await target.healthy()


async def test_a_target_takes_settings_and_a_store(
    start_target: StartTarget, postgresql: PostgreSQL
) -> None:
    target = await start_target(postgresql, rate_limit_ip="2")
    client = target.site.client()
    statuses = [(await client.get("/api/v1/daemons")).status_code for _ in range(4)]
    assert 429 in statuses
    assert "postgresql" in target.site.settings.sqlalchemy_url
