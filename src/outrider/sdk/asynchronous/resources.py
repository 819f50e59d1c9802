"""What a client has beside its machines: sessions, approvals, webhooks."""

from collections.abc import Iterable

from outrider.contract.outcomes import Deleted
from outrider.contract.resources import Approval, Session, SessionState
from outrider.contract.webhooks import (
    Delivered,
    Delivery,
    DeliveryDetails,
    Replayed,
    Webhook,
    WebhookWithSecret,
)
from outrider.sdk import operations
from outrider.sdk.asynchronous.machine import AsyncMachine
from outrider.sdk.asynchronous.transport import AsyncTransport
from outrider.sdk.errors import Conflict, NotFound

DeliveryRows = list[Delivery]
"""Inside the class, `list` is its method."""


class AsyncMachines:
    """The machines of the account."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, state: str | None = None) -> list[AsyncMachine]:
        """Return the connected machines.

        Args:
            state: `all` also returns those that are offline, in their last state.
        """
        page = await self._transport.send(operations.LIST_MACHINES, query={"state": state})
        return [AsyncMachine(self._transport, daemon) for daemon in page.daemons]

    async def get(self, name: str) -> AsyncMachine:
        """Return a machine by its id or nickname, also one that is offline.

        Raises:
            NotFound: there is none.
            Conflict: several machines have the nickname.
        """
        machines = await self.list(state="all")
        fitting = [machine for machine in machines if machine.id == name]
        # An id first: a nickname may be the id of another machine.
        fitting = fitting or [machine for machine in machines if machine.nickname == name]
        if not fitting:
            raise NotFound(f"No machine {name!r} in this account", status=404)
        if len(fitting) > 1:
            ids = ", ".join(machine.id for machine in fitting)
            raise Conflict(f"Several machines are called {name!r}: use an id of {ids}", status=409)
        return fitting[0]


class AsyncSessions:
    """The sessions of the account, running and ended, also of machines that are offline."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        state: SessionState | None = None,
        q: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[Session]:
        """Return sessions, the newest first.

        Args:
            state: `running` or `ended`; both by default.
            q: text in the title, the directory, the type or the machine's name.
            limit: how many, 1 to 1000; 100 by default.
            before: the id or the target id of a session, for the next page: only those launched
                earlier. A page may have fewer than `limit`.
        """
        query = {"state": state, "q": q, "limit": limit, "before": before}
        return (await self._transport.send(operations.LIST_SESSIONS, query=query)).sessions


class AsyncApprovals:
    """What the agents of the account ask."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def pending(self) -> list[Approval]:
        """Return the open questions, the oldest first.

        Answer one with `client.agent(approval.target_id).approve(action_id=approval.action.id)`.
        """
        approvals: list[Approval] = []
        after: str | None = None
        while True:  # a page has 4 MiB at most
            page = await self._transport.send(operations.LIST_APPROVALS, query={"after": after})
            approvals += page.approvals
            if not isinstance(page.cursor, str) or page.cursor == after:
                return approvals
            after = page.cursor


class AsyncWebhooks:
    """The webhooks of the account. `outrider.sdk.webhooks.verify` is for their receivers.

    All but `list`, `deliveries` and `delivery` need a client with `login=(email, password)`.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> list[Webhook]:
        """Return the webhooks, the oldest first."""
        return (await self._transport.send(operations.LIST_WEBHOOKS)).webhooks

    async def create(self, url: str, events: Iterable[str]) -> WebhookWithSecret:
        """Subscribe a URL to events; `*` stands for all. The secret is shown this once."""
        body = {"url": url, "events": [*events]}
        return await self._transport.send(operations.CREATE_WEBHOOK, body=body)

    async def update(self, webhook_id: str, *, active: bool) -> Webhook:
        """Switch a webhook on or off."""
        return await self._transport.send(
            operations.CHANGE_WEBHOOK, body={"active": active}, webhookId=webhook_id
        )

    async def delete(self, webhook_id: str) -> Deleted:
        """Delete a webhook with its history."""
        return await self._transport.send(operations.DELETE_WEBHOOK, webhookId=webhook_id)

    async def deliveries(
        self, webhook_id: str, *, limit: int | None = None, before: str | None = None
    ) -> DeliveryRows:
        """Return deliveries, the newest first.

        Args:
            limit: how many, 1 to 100; 20 by default.
            before: the id of a delivery: only older ones.
        """
        query = {"limit": limit, "before": before}
        page = await self._transport.send(
            operations.LIST_DELIVERIES, query=query, webhookId=webhook_id
        )
        return page.deliveries

    async def delivery(self, webhook_id: str, delivery_id: str) -> DeliveryDetails:
        """Return a delivery with its request."""
        return await self._transport.send(
            operations.READ_DELIVERY, webhookId=webhook_id, deliveryId=delivery_id
        )

    async def test(self, webhook_id: str) -> Delivered:
        """Send a test event, and return its delivery after the first attempt."""
        return await self._transport.send(operations.TEST_WEBHOOK, webhookId=webhook_id)

    async def resend(self, webhook_id: str, delivery_id: str) -> Delivered:
        """Deliver an event again."""
        return await self._transport.send(
            operations.RESEND, webhookId=webhook_id, deliveryId=delivery_id
        )

    async def replay(self, webhook_id: str, *, since: int) -> Replayed:
        """Deliver again what has failed since a time, in epoch milliseconds."""
        return await self._transport.send(
            operations.REPLAY, body={"since": since}, webhookId=webhook_id
        )

    async def rotate_secret(self, webhook_id: str) -> WebhookWithSecret:
        """Give a webhook a new secret; the old one stays valid for 24 hours."""
        return await self._transport.send(operations.ROTATE_SECRET, webhookId=webhook_id)
