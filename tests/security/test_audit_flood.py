"""Filling the audit with refusals."""

import asyncio

from sqlalchemy import ColumnElement, func, select

from outrider.service.database import tables
from tests.rig.waiting import eventually
from tests.security.conftest import StartTarget
from tests.security.target import MB


async def test_four_thousand_refusals_from_one_network(start_target: StartTarget) -> None:
    """They leave a record a minute, not one for each of the addresses that a /64 has."""
    target = await start_target(trusted_proxies="127.0.0.1")
    client = target.site.client()

    async def refused(number: int) -> int:
        headers = {"X-Forwarded-For": f"2001:db8:1:2:{number:x}::1"}
        return (await client.get("/api/v1/daemons", headers=headers)).status_code

    async with target.grows_at_most(20 * MB):
        for start in range(0, 4000, 100):
            answers = await asyncio.gather(*map(refused, range(start, start + 100)))
            assert set(answers) == {401}
    # Once a later record is stored, all of them are.
    account = await target.account()
    await account.api.post("/api/v1/daemons/machine_x/revoke")

    async def noted(condition: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(tables.audit).where(condition)
        async with target.site.database.read() as connection:
            return int(await connection.scalar(query))

    async def is_stored() -> bool:
        return await noted(tables.audit.c.account_id == account.id) > 0

    await eventually(is_stored)
    assert 1 <= await noted(tables.audit.c.account_id.is_(None)) <= 5
