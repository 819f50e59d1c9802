"""The monthly quota: API-key requests that an account may make in a calendar month, UTC.

A node reserves calls in the database in batches and then spends them from memory. Reserving is one
transaction, so nodes and concurrent requests together never admit more than the plan allows. A
batch is one percent of the rest; the last hundred calls are reserved one by one, so that no
node holds calls that another one needs. Unspent calls are returned when the service stops. A crash
loses them for the month: at most one percent of what was left. Until they are returned, the other
nodes count them as used.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import ceil
from typing import Final, Literal, NamedTuple

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.accounts.store import usage
from outrider.service.database.engine import DATABASE_ERRORS, Database, cannot_store

PlanName = Literal["free", "pro", "team", "enterprise"]


class Plan(NamedTuple):
    """The limits of a plan; None is unlimited."""

    calls_per_month: int | None
    webhooks: int | None


PLANS: Final[dict[str, Plan]] = {
    "free": Plan(1_000, 2),
    "pro": Plan(50_000, 10),
    "team": Plan(500_000, 50),
    "enterprise": Plan(None, None),
}

_MAX_BATCH: Final = 10_000
_UNLIMITED_BATCH: Final = 500

_PLAN_SECONDS: Final = 60.0

_UNCOUNTED: Final = "uncounted"
_UNCOUNTED_CALLS: Final = 100
"""Calls of an unlimited plan that are admitted uncounted while the database is read-only."""


class _Allowance:
    """The calls that this node has reserved for an account, in the month that ends at `ends`.

    `checked` is when the plan was read. Times are seconds since the epoch. `lock` is held while
    calls are reserved or returned; spending one needs no lock, because it does not await.
    """

    def __init__(self) -> None:
        self.month = ""
        self.ends = 0.0
        self.plan = ""
        self.left = 0
        self.checked = 0.0
        self.lock = asyncio.Lock()

    def is_spent(self, now: float) -> bool:
        """Return whether no reserved call is left, or the month is over."""
        return self.left <= 0 or self.ends <= now


class Quota:
    """Counts the calls of every account.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._allowances: dict[str, _Allowance] = {}

    async def spend(self, account_id: str) -> None:
        """Spend a call; reserve more in the database if needed.

        Raises:
            ApiError: 429 `API_LIMIT_EXCEEDED`, the plan's calls of this month are used up; 401,
                the account has been deleted.
        """
        now = self._clock()
        allowance = self._allowances.get(account_id)
        if allowance is None:
            allowance = self._allowances[account_id] = _Allowance()
        # Other requests may use up a new batch before this one runs again: check in a loop.
        while allowance.is_spent(now):
            async with allowance.lock:
                if allowance.is_spent(now):
                    await self._reserve(account_id, allowance, now)
        allowance.left -= 1

    async def used(self, account_id: str) -> tuple[str, int]:
        """Return the month (`YYYY-MM`) and the calls made in it."""
        month = _month(self._clock())
        calls = await usage.calls(self._database, account_id, month)
        allowance = self._allowances.get(account_id)
        unspent = allowance.left if allowance is not None and allowance.month == month else 0
        return month, calls - unspent

    async def give_back(self) -> None:
        """Return all reserved calls that are unspent to the database."""
        for account_id in self._allowances:
            await self.refresh(account_id)

    async def refresh(self, account_id: str) -> None:
        """Return an account's unspent calls, and read its plan again at the next call."""
        allowance = self._allowances.get(account_id)
        if allowance is None:
            return
        async with allowance.lock:
            unspent, allowance.left, allowance.checked = allowance.left, 0, 0.0
            if unspent and allowance.month == _month(self._clock()):
                await usage.give_back(self._database, account_id, allowance.month, unspent)

    async def _reserve(self, account_id: str, allowance: _Allowance, now: float) -> None:
        if allowance.checked + _PLAN_SECONDS <= now:
            allowance.plan = await usage.plan_of(self._database, account_id)
            allowance.checked = now
        month, limit = _month(now), PLANS[allowance.plan].calls_per_month
        allowance.left = 0  # unspent calls of another month do not carry over
        allowance.month, allowance.ends = month, _next_month(now)
        try:
            most = _UNLIMITED_BATCH if limit is None else _MAX_BATCH
            granted = await usage.set_aside(self._database, account_id, month, limit, most=most)
        except DATABASE_ERRORS as error:
            if limit is not None or not cannot_store(error):
                raise
            # The plan is unlimited: keep serving reads although calls cannot be counted.
            allowance.month, granted = _UNCOUNTED, _UNCOUNTED_CALLS
        if granted <= 0:
            raise ApiError(
                429,
                f"The {limit} API calls that the {allowance.plan} plan has a month are spent: "
                "they begin anew next month (UTC), or take a larger plan",
                code=ErrorCode.API_LIMIT_EXCEEDED,
                retry_after=ceil(_next_month(now) - now),
            )
        allowance.left = granted


def _month(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def _next_month(now: float) -> float:
    current = datetime.fromtimestamp(now, UTC)
    years, month = divmod(current.month, 12)
    return datetime(current.year + years, month + 1, 1, tzinfo=UTC).timestamp()
