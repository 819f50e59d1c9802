"""Enrolls a fleet at once, in the database: one by one takes longer than the whole benchmark."""

import asyncio
import time
from pathlib import Path
from typing import Final

import msgspec
from sqlalchemy import insert

from benchmarks.fleet.machine import Enrolled
from outrider.cloud.access import credentials
from outrider.cloud.store import tables
from outrider.cloud.store.database import Database
from outrider.contract.ids import new_id

MACHINES: Final = 10_000
"""How many machines a fleet has by default."""

PER_ACCOUNT: Final = 100


def enroll(url: str, account: str, count: int, file: Path) -> list[Enrolled]:
    """Enroll machines, the first `PER_ACCOUNT` in `account`, each further hundred in a new one.

    Args:
        url: the database's address for SQLAlchemy.
        file: is written, for the simulator.
    """
    machines = [Enrolled(new_id("machine"), credentials.new_machine_token()) for _ in range(count)]
    others = [new_id("acct") for _ in range((count - 1) // PER_ACCOUNT)]
    asyncio.run(_insert(url, [account, *others], machines))
    file.touch(mode=0o600)
    file.write_bytes(b"".join(msgspec.json.encode(machine) + b"\n" for machine in machines))
    return machines


async def _insert(url: str, accounts: list[str], machines: list[Enrolled]) -> None:
    now = int(time.time() * 1000)
    database = Database(url)
    try:
        async with database.begin() as transaction:
            if accounts[1:]:
                await transaction.execute(
                    insert(tables.accounts),
                    [
                        {"id": account, "plan": "enterprise", "created_at": now}
                        for account in accounts[1:]
                    ],
                )
            await transaction.execute(
                insert(tables.machines),
                [
                    {
                        "id": machine.daemon_id,
                        "account_id": accounts[number // PER_ACCOUNT],
                        "nickname": f"worker {number}",
                        "hostname": f"worker-{number:05}",
                        "platform": "linux",
                        "version": "0",
                        "token_hash": credentials.digest(machine.token),
                        "created_at": now,
                        "connected": False,
                    }
                    for number, machine in enumerate(machines)
                ],
            )
    finally:
        await database.close()
