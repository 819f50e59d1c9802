"""Webhook subscriptions: created, changed, deleted, and found for an event."""

import asyncio
import secrets as random
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
from cachetools import LRUCache, TTLCache

from outrider.contract.errors import ApiError, ErrorCode, bad_request, not_found
from outrider.contract.events import EventName
from outrider.contract.ids import new_id
from outrider.contract.webhooks import LastDelivery, Webhook, WebhookRequest, WebhookWithSecret
from outrider.service.accounts.encryption import Cipher
from outrider.service.database.engine import Database
from outrider.service.webhooks.addresses import AddressPolicy
from outrider.service.webhooks.store import webhooks

ALL_EVENTS: Final = "*"
OLD_SECRET_SECONDS: Final = 86400.0
"""How long a replaced secret signs in addition to the new one."""

_SECRET: Final = "webhook secret"  # noqa: S105  # the context of the encryption
_CACHE_SECONDS: Final = 1.0
_CACHED_ACCOUNTS: Final = 10_000
_CACHED_OWNERS: Final = 100_000
_CACHED_SECRETS: Final = 10_000


class Destination(NamedTuple):
    """A webhook as its deliveries need it, with its encrypted secrets, the newest first."""

    id: str
    url: str
    active: bool
    events: frozenset[str]
    encrypted_secrets: tuple[bytes, ...]

    def wants(self, event: str) -> bool:
        """Return whether it is active and subscribed to an event."""
        return self.active and (ALL_EVENTS in self.events or event in self.events)


class Subscriptions:
    """The webhooks of every account.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        policy: AddressPolicy,
        cipher: Cipher,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._policy = policy
        self._cipher = cipher
        self._clock = clock
        self._cache: TTLCache[str, dict[str, Destination]] = TTLCache(
            _CACHED_ACCOUNTS, _CACHE_SECONDS, clock
        )
        self._owners: LRUCache[str, str] = LRUCache(_CACHED_OWNERS)
        self._decrypted = lru_cache(_CACHED_SECRETS)(self._decrypt)
        self._reading: dict[str, asyncio.Task[dict[str, Destination]]] = {}

    async def destinations(self, account_id: str) -> dict[str, Destination]:
        """Return the account's webhooks by id; changes on other nodes appear within a second."""
        cached = self._cache.get(account_id)
        if cached is not None:
            return cached
        reading = self._reading.get(account_id)
        if reading is None:  # concurrent callers share one query
            reading = asyncio.create_task(self._read(account_id), name="read webhooks")
            self._reading[account_id] = reading
        return await asyncio.shield(reading)

    async def destination(self, webhook_id: str) -> tuple[str, Destination] | None:
        """Return the account and destination of a webhook, None if it has been deleted.

        Changes on other nodes appear within a second.
        """
        account_id = self._owners.get(webhook_id)
        if account_id is None:
            row = await webhooks.by_id(self._database, webhook_id)
            if row is None:
                return None
            account_id = self._owners[webhook_id] = row.account_id
        destination = (await self.destinations(account_id)).get(webhook_id)
        return None if destination is None else (account_id, destination)

    def secrets(self, destination: Destination) -> list[str]:
        """Return the secrets that sign a destination's deliveries, the newest first.

        Raises:
            OutriderError: they were encrypted with another key than this service has.
        """
        return [self._decrypted(secret) for secret in destination.encrypted_secrets]

    async def list(self, account_id: str) -> list[Webhook]:
        """Return the account's webhooks, oldest first."""
        return [_view(row) for row in await webhooks.of_account(self._database, account_id)]

    async def get(self, account_id: str, webhook_id: str) -> webhooks.Webhook:
        """Return a webhook of the account.

        Raises:
            ApiError: 404, there is no such webhook in the account.
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
                403 `PLAN_LIMIT_EXCEEDED`, the account already has `maximum` webhooks.
        """
        unknown = sorted(set(request.events) - set(EventName) - {ALL_EVENTS})
        if unknown:
            names = ", ".join(sorted(EventName))
            raise bad_request(
                f"Unknown event {unknown[0]!r}: it is one of {names}, or * for all", "events"
            )
        url = await self._policy.check_url(request.url)
        secret, now = _new_secret(), self._now()
        row = webhooks.Webhook(
            id=new_id("webhook"),
            account_id=account_id,
            url=url,
            events=list(dict.fromkeys(request.events)),
            active=True,
            created_at=now,
            updated_at=now,
            secret=self._cipher.encrypt(secret.encode(), _SECRET),
        )
        if not await webhooks.add(self._database, row, maximum):
            raise ApiError(
                403,
                f"The plan has room for {maximum} webhooks: remove one, or take a larger plan",
                code=ErrorCode.PLAN_LIMIT_EXCEEDED,
            )
        self.invalidate(account_id)
        return _with_secret(row, secret)

    async def set_active(self, account_id: str, webhook_id: str, *, active: bool) -> Webhook:
        """Enable or disable a webhook."""
        values = {
            "active": active,
            "updated_at": self._now(),
            "disabled_reason": None,
            "failing_since": None,
        }
        return _view(await self._change(account_id, webhook_id, values))

    async def rotate_secret(self, account_id: str, webhook_id: str) -> WebhookWithSecret:
        """Give a webhook a new secret; for a day the old one signs as well."""
        current = await self.get(account_id, webhook_id)
        secret, now = _new_secret(), self._now()
        values = {
            "secret": self._cipher.encrypt(secret.encode(), _SECRET),
            "old_secret": current.secret,
            "old_secret_until": now + int(OLD_SECRET_SECONDS * 1000),
            "updated_at": now,
        }
        return _with_secret(await self._change(account_id, webhook_id, values), secret)

    async def remove(self, account_id: str, webhook_id: str) -> None:
        """Delete a webhook with its deliveries."""
        if not await webhooks.remove(self._database, account_id, webhook_id):
            raise _unknown(webhook_id)
        self.invalidate(account_id)

    async def disable(self, account_id: str, webhook_id: str, reason: str) -> None:
        """Disable a webhook because of its receiver's behaviour; `reason` is shown to the user."""
        async with self._database.begin() as transaction:
            await webhooks.disable(transaction, webhook_id, reason, self._now())
        self.invalidate(account_id)

    def invalidate(self, account_id: str) -> None:
        """Drop the cached webhooks of an account: the next event reads them again."""
        self._reading.pop(account_id, None)  # a query under way may be older than the change
        self._cache.pop(account_id, None)

    async def _change(
        self, account_id: str, webhook_id: str, values: Mapping[str, object]
    ) -> webhooks.Webhook:
        row = await webhooks.change(self._database, account_id, webhook_id, values)
        if row is None:
            raise _unknown(webhook_id)
        self.invalidate(account_id)
        return row

    async def _read(self, account_id: str) -> dict[str, Destination]:
        try:
            rows = await webhooks.of_account(self._database, account_id)
            destinations = {row.id: self._destination(row) for row in rows}
            if self._reading.get(account_id) is asyncio.current_task():
                self._cache[account_id] = destinations
            return destinations
        finally:
            if self._reading.get(account_id) is asyncio.current_task():
                del self._reading[account_id]

    def _decrypt(self, encrypted: bytes) -> str:
        return self._cipher.decrypt(encrypted, _SECRET).decode()

    def _destination(self, row: webhooks.Webhook) -> Destination:
        encrypted = [row.secret]
        if row.old_secret is not None and (row.old_secret_until or 0) > self._now():
            encrypted.append(row.old_secret)
        return Destination(
            id=row.id,
            url=row.url,
            active=row.active,
            events=frozenset(row.events),
            encrypted_secrets=tuple(encrypted),
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
    return WebhookWithSecret(**msgspec.structs.asdict(_view(row)), secret=secret)
