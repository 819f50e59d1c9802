"""The webhooks: made, changed, removed, and found for an event."""

import asyncio
import secrets as random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec

from outrider.cloud.store import webhooks
from outrider.cloud.store.database import Database
from outrider.cloud.webhooks.guard import Guard
from outrider.contract.errors import ApiError, ErrorCode, bad_request, not_found
from outrider.contract.events import EventName
from outrider.contract.ids import new_id
from outrider.contract.webhooks import LastDelivery, Webhook, WebhookRequest, WebhookWithSecret

EVERYTHING: Final = "*"
OLD_SECRET_SECONDS: Final = 86400.0
"""How long a secret signs beside the one that has replaced it."""

_SECRET: Final = "webhook secret"  # noqa: S105  # what a sealed secret is sealed as
_REMEMBERED_SECONDS: Final = 1.0
_REMEMBERED_ACCOUNTS: Final = 10_000
_REMEMBERED_OWNERS: Final = 100_000
_REMEMBERED_SECRETS: Final = 10_000


class Sealer(Protocol):
    """Seals secrets; see `access.sealing`."""

    def seal(self, data: bytes, context: str) -> bytes:
        """Return the data sealed."""

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the data of something sealed."""


class Target(NamedTuple):
    """Where a delivery goes. `sealed` are the secrets that sign it, the newest first."""

    id: str
    url: str
    active: bool
    events: frozenset[str]
    sealed: tuple[bytes, ...]

    def wants(self, event: str) -> bool:
        """Tell whether it is subscribed to an event."""
        return self.active and (EVERYTHING in self.events or event in self.events)


class Subscriptions:
    """The webhooks of every account.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        guard: Guard,
        sealer: Sealer,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._guard = guard
        self._sealer = sealer
        self._clock = clock
        self._remembered: OrderedDict[str, tuple[float, dict[str, Target]]] = OrderedDict()
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._opened = lru_cache(_REMEMBERED_SECRETS)(self._open)
        self._reading: dict[str, asyncio.Task[dict[str, Target]]] = {}

    async def targets(self, account_id: str) -> dict[str, Target]:
        """Return the account's webhooks by id; a change elsewhere shows within a second."""
        known = self._remembered.get(account_id)
        now = self._clock()
        if known is not None and known[0] > now:
            return known[1]
        reading = self._reading.get(account_id)
        if reading is None:  # once for all the deliveries that ask at this moment
            reading = asyncio.create_task(self._read(account_id, now), name="read webhooks")
            self._reading[account_id] = reading
        return await asyncio.shield(reading)

    async def target(self, webhook_id: str) -> tuple[str, Target] | None:
        """Return the account and the target of a webhook, None where it is no more.

        A change elsewhere shows within a second.
        """
        account_id = self._owners.get(webhook_id)
        if account_id is None:
            row = await webhooks.by_id(self._database, webhook_id)
            if row is None:
                return None
            account_id = self._owners[webhook_id] = row.account_id
            if len(self._owners) > _REMEMBERED_OWNERS:
                self._owners.popitem(last=False)
        target = (await self.targets(account_id)).get(webhook_id)
        return None if target is None else (account_id, target)

    def secrets(self, target: Target) -> list[str]:
        """Return the secrets that sign a target's deliveries, the newest first.

        Raises:
            OutriderError: they were sealed with another key than this service has.
        """
        return [self._opened(sealed) for sealed in target.sealed]

    async def list(self, account_id: str) -> list[Webhook]:
        """Return the account's webhooks, oldest first."""
        return [_view(row) for row in await webhooks.of_account(self._database, account_id)]

    async def get(self, account_id: str, webhook_id: str) -> webhooks.Webhook:
        """Return a webhook of the account.

        Raises:
            ApiError: 404, it has none such.
        """
        row = await webhooks.by_id(self._database, webhook_id)
        if row is None or row.account_id != account_id:
            raise _unknown(webhook_id)
        return row

    async def create(
        self, account_id: str, request: WebhookRequest, maximum: int | None
    ) -> WebhookWithSecret:
        """Subscribe a URL to events.

        Raises:
            ApiError: 400, an unknown event or a URL that is not allowed;
                403 `PLAN_LIMIT_EXCEEDED`, the account has `maximum` webhooks.
        """
        unknown = sorted(set(request.events) - set(EventName) - {EVERYTHING})
        if unknown:
            names = ", ".join(sorted(EventName))
            raise bad_request(
                f"Unknown event {unknown[0]!r}: it is one of {names}, or * for all", "events"
            )
        url = await self._guard.check_url(request.url)
        secret, now = _new_secret(), self._now()
        row = webhooks.Webhook(
            id=new_id("webhook"),
            account_id=account_id,
            url=url,
            events=list(dict.fromkeys(request.events)),
            active=True,
            created_at=now,
            updated_at=now,
            secret=self._sealer.seal(secret.encode(), _SECRET),
            old_secret=None,
            old_secret_until=None,
            disabled_reason=None,
            failing_since=None,
            last_delivery=None,
        )
        if not await webhooks.add(self._database, row, maximum):
            raise ApiError(
                403,
                f"The plan has room for {maximum} webhooks: remove one, or take a larger plan",
                code=ErrorCode.PLAN_LIMIT_EXCEEDED,
            )
        self.forget(account_id)
        return _with_secret(row, secret)

    async def set_active(self, account_id: str, webhook_id: str, *, active: bool) -> Webhook:
        """Switch a webhook on or off."""
        values = {
            "active": active,
            "updated_at": self._now(),
            "disabled_reason": None,
            "failing_since": None,
        }
        return _view(await self._change(account_id, webhook_id, values))

    async def rotate_secret(self, account_id: str, webhook_id: str) -> WebhookWithSecret:
        """Give a webhook a new secret; the old one signs beside it for a day."""
        current = await self.get(account_id, webhook_id)
        secret, now = _new_secret(), self._now()
        values = {
            "secret": self._sealer.seal(secret.encode(), _SECRET),
            "old_secret": current.secret,
            "old_secret_until": now + int(OLD_SECRET_SECONDS * 1000),
            "updated_at": now,
        }
        return _with_secret(await self._change(account_id, webhook_id, values), secret)

    async def remove(self, account_id: str, webhook_id: str) -> None:
        """Remove a webhook with its deliveries."""
        if not await webhooks.remove(self._database, account_id, webhook_id):
            raise _unknown(webhook_id)
        self.forget(account_id)

    async def switch_off(self, account_id: str, webhook_id: str, reason: str) -> None:
        """Switch a webhook off because of what its receiver does, and remember why."""
        await webhooks.switch_off(self._database, webhook_id, reason, self._now())
        self.forget(account_id)

    def forget(self, account_id: str) -> None:
        """Read the account's webhooks again at the next event."""
        self._reading.pop(account_id, None)  # what it reads may be older than the change
        self._remembered.pop(account_id, None)

    async def _change(
        self, account_id: str, webhook_id: str, values: Mapping[str, object]
    ) -> webhooks.Webhook:
        row = await webhooks.change(self._database, account_id, webhook_id, values)
        if row is None:
            raise _unknown(webhook_id)
        self.forget(account_id)
        return row

    async def _read(self, account_id: str, now: float) -> dict[str, Target]:
        try:
            rows = await webhooks.of_account(self._database, account_id)
            targets = {row.id: self._target(row) for row in rows}
            if self._reading.get(account_id) is asyncio.current_task():
                self._remembered[account_id] = (now + _REMEMBERED_SECONDS, targets)
                self._remembered.move_to_end(account_id)
                if len(self._remembered) > _REMEMBERED_ACCOUNTS:
                    self._remembered.popitem(last=False)
            return targets
        finally:
            if self._reading.get(account_id) is asyncio.current_task():
                del self._reading[account_id]

    def _open(self, sealed: bytes) -> str:
        return self._sealer.open(sealed, _SECRET).decode()

    def _target(self, row: webhooks.Webhook) -> Target:
        sealed = [row.secret]
        if row.old_secret is not None and (row.old_secret_until or 0) > self._now():
            sealed.append(row.old_secret)
        return Target(
            id=row.id,
            url=row.url,
            active=row.active,
            events=frozenset(row.events),
            sealed=tuple(sealed),
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _new_secret() -> str:
    return f"whsec_{random.token_urlsafe(32)}"


def _unknown(webhook_id: str) -> ApiError:
    return not_found(f"No webhook {webhook_id!r} in this account")


def _view(row: webhooks.Webhook) -> Webhook:
    last = row.last_delivery
    return Webhook(
        id=row.id,
        url=row.url,
        events=row.events,
        active=row.active,
        created_at=row.created_at,
        updated_at=row.updated_at,
        last_delivery=None if last is None else msgspec.convert(last, LastDelivery),
        disabled_reason=row.disabled_reason,
    )


def _with_secret(row: webhooks.Webhook, secret: str) -> WebhookWithSecret:
    view = _view(row)
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    return WebhookWithSecret(**fields, secret=secret)
