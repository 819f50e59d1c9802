"""What the access layer costs: one build with and without it, and each of its stages alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop
from starlette.types import Scope
from tests.rig.site import new_account

from benchmarks.command import Options
from benchmarks.processes import SERVING, Stage, stage
from benchmarks.report import Figure, Report, Section, Target, compared
from benchmarks.service import Installation, Server
from benchmarks.sides import Account, Sides, side_by_side
from benchmarks.wrk import require_wrk
from outrider.cloud.access.audit import Audit
from outrider.cloud.access.authentication import Authenticator
from outrider.cloud.access.client_address import Addresses, bucket
from outrider.cloud.access.quota import Quota
from outrider.cloud.access.rate_limits import RateLimits
from outrider.cloud.access.sessions import Sessions
from outrider.cloud.store.database import Database

_TIMES: Final = 5_000
_NO_LIMIT: Final = 1_000_000_000
_SCOPE: Final[Scope] = {"client": ("127.0.0.1", 40_000), "headers": [(b"host", b"127.0.0.1")]}


async def _stages(here: Stage, rounds: int) -> list[Figure]:
    """Return the cost of each stage, in the order in which a request passes them."""
    database = Database(f"sqlite+aiosqlite:///{here.directory / 'stages.db'}")
    await database.migrate()
    account = (await new_account(database, "enterprise")).id
    key = await Installation.issue_key(database, account)
    addresses = Addresses([])
    rates = RateLimits(key=_NO_LIMIT, ip=_NO_LIMIT, auth=_NO_LIMIT)
    authenticator = Authenticator(database, Sessions(database, "x" * 32))
    quota, audit = Quota(database), Audit(database)
    statuses = [await rates.hit("ip", "a"), await rates.hit("key", "b")]

    async def authentication() -> None:
        authenticator.remembered(key) or await authenticator.principal(key)

    async def monthly_quota() -> None:
        if not quota.spend_here(account):
            await quota.spend(account)

    def audit_note() -> None:
        audit.note(
            principal="key",
            account_id=account,
            action="command",
            target="machine",
            outcome=200,
            address="127.0.0.1",
            request_id="request",
        )

    stages: dict[str, Callable[[], Awaitable[None] | object]] = {
        "address": lambda: bucket(addresses.client(_SCOPE)),
        "IP limit": lambda: rates.hit_local("ip", "127.0.0.1"),
        "authentication": authentication,
        "key limit": lambda: rates.hit_local("key", "key"),
        "monthly quota": monthly_quota,
        "rate limit headers": lambda: rates.headers(statuses),
        "audit note (changes only)": audit_note,
    }
    try:
        return [
            Figure(name, "us", [await _once(stage) for _ in range(rounds)])
            for name, stage in stages.items()
        ]
    finally:
        await database.close()


async def _once(stage: Callable[[], Awaitable[None] | object]) -> float:
    """Return the microseconds that a stage takes."""

    async def call() -> None:
        result = stage()
        if isinstance(result, Awaitable):
            await result

    await call()
    await asyncio.sleep(0)
    began = time.perf_counter()
    for _ in range(_TIMES):
        await call()
    return (time.perf_counter() - began) / _TIMES * 1e6


CONNECTIONS: Final = 32

_REQUESTS: Final = ("GET …/status", "POST …/command read_chat")
_TARGET: Final = Target("at least", 0.85, of="ratio")


def benchmark(options: Options) -> Report:
    """Measure the throughput that the access layer leaves, then each of its stages."""
    require_wrk()
    with stage() as here:
        with side_by_side(here, _bypassed) as sides:
            throughput = [figure for name in _REQUESTS for figure in _compare(name, sides, options)]
        costs = uvloop.run(_stages(here, options.rounds))
    return Report(
        benchmark="access",
        sections=[
            Section(title="With the access layer; the baseline is without it", figures=throughput),
            Section(title="Its stages, each alone", figures=costs),
        ],
    )


def _bypassed(installation: Installation, account: Account, _: bytes) -> Server:
    """Start the same build with the access layer bypassed, on a copy of the data."""
    return Installation(installation.stage, "bypassed", copy_of=installation).serve(
        account.key,
        SERVING,
        module="benchmarks.programs.bypassed_service",
        settings={"ACCOUNT": account.id},
    )


def _compare(name: str, sides: Sides, options: Options) -> list[Figure]:
    runs = sides.in_turns(name, CONNECTIONS, options)
    throughput, cost = f"{name}, {CONNECTIONS} connections", f"{name}, processor time"
    return [
        compared(throughput, "requests/s", runs, lambda run: run.per_second, _TARGET),
        compared(cost, "us/request", runs, lambda run: run.cpu_per_request),
    ]
