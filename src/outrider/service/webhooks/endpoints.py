"""Webhooks: subscribe, see what was delivered, try again."""

from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec import UNSET

from outrider.contract.errors import not_found
from outrider.contract.outcomes import Deleted
from outrider.contract.webhooks import (
    Delivered,
    DeliveryDetails,
    DeliveryList,
    DeliveryQuery,
    Replayed,
    ReplayRequest,
    Webhook,
    WebhookChange,
    WebhookList,
    WebhookRequest,
    WebhookWithSecret,
)
from outrider.service.accounts.principal import Scope
from outrider.service.accounts.quota import PLANS
from outrider.service.accounts.store import usage
from outrider.service.database.engine import Database
from outrider.service.http.endpoint import Call, Endpoint
from outrider.service.webhooks import retry_policy, sender
from outrider.service.webhooks.delivery_queue import DeliveryQueue
from outrider.service.webhooks.event_intake import EventIntake
from outrider.service.webhooks.store import deliveries
from outrider.service.webhooks.subscriptions import Subscriptions

_REPLAYED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServices:
    """What the handlers of webhooks use."""

    database: Database
    subscriptions: Subscriptions
    queue: DeliveryQueue
    intake: EventIntake


async def list_webhooks(services: WebhookServices, call: Call) -> WebhookList:
    """The account's webhooks, oldest first, without their secrets."""
    return WebhookList(webhooks=await services.subscriptions.list(call.account_id))


async def create_webhook(services: WebhookServices, call: Call) -> WebhookWithSecret:
    """Subscribe a URL to events. The secret that signs the deliveries is shown this once."""
    request: WebhookRequest = call.body
    plan = PLANS[await usage.plan_of(services.database, call.account_id)]
    return await services.subscriptions.create(call.account_id, request, plan.webhooks)


async def change_webhook(services: WebhookServices, call: Call) -> Webhook:
    """Switch a webhook on or off. Switched off, it is sent nothing; what is due to it fails."""
    change: WebhookChange = call.body
    return await services.subscriptions.set_active(
        call.account_id, call.path("webhookId"), active=change.active
    )


async def delete_webhook(services: WebhookServices, call: Call) -> Deleted:
    """Delete a webhook with its history. Deliveries that were due are not made."""
    webhook_id = call.path("webhookId")
    await services.subscriptions.remove(call.account_id, webhook_id)
    return Deleted(id=webhook_id)


async def list_deliveries(services: WebhookServices, call: Call) -> DeliveryList:
    """The deliveries of the last 30 days, newest first, each with its attempts."""
    query: DeliveryQuery = call.query
    webhook = await services.subscriptions.get(call.account_id, call.path("webhookId"))
    rows, has_more = await deliveries.of_webhook(
        services.database, webhook.id, limit=query.limit, before=query.before
    )
    return DeliveryList(
        deliveries=[retry_policy.record(row) for row in rows],
        cursor=rows[-1].id if has_more else UNSET,
    )


async def read_delivery(services: WebhookServices, call: Call) -> DeliveryDetails:
    """A delivery with its attempts and the request that it makes."""
    delivery = await _delivery(services, call)
    body = await deliveries.body_of(services.database, delivery.event_id)
    headers = sender.request_headers(
        event=delivery.event, delivery=delivery.id, number=max(1, delivery.attempt)
    )
    return DeliveryDetails(
        **msgspec.structs.asdict(retry_policy.record(delivery)),
        request_headers=headers,
        request_body=(body or b"").decode(),
    )


async def test_webhook(services: WebhookServices, call: Call) -> Delivered:
    """Send a `webhook:test` event to this webhook, active or not.

    Responds after the first attempt; `success` says whether the receiver accepted it.
    """
    webhook = await services.subscriptions.get(call.account_id, call.path("webhookId"))
    delivery = await services.intake.test(call.account_id, webhook.id)
    return Delivered(success=delivery.status == "succeeded", delivery=retry_policy.record(delivery))


async def resend_delivery(services: WebhookServices, call: Call) -> Delivered:
    """Deliver an event once more, as a new delivery with the same event id.

    Responds after the first attempt; `success` says whether the receiver accepted it.
    """
    delivery = await services.queue.deliver_again(await _delivery(services, call))
    return Delivered(success=delivery.status == "succeeded", delivery=retry_policy.record(delivery))


async def replay_deliveries(services: WebhookServices, call: Call) -> Replayed:
    """Deliver again what has failed since a time: each event once, the oldest 1000 of them.

    Events that were delivered after all are left out.
    """
    request: ReplayRequest = call.body
    webhook = await services.subscriptions.get(call.account_id, call.path("webhookId"))
    failed = await deliveries.failed_since(
        services.database, webhook.id, request.since, _REPLAYED_AT_ONCE
    )
    if failed:
        await services.queue.replay(failed)
    return Replayed(count=len(failed))


async def rotate_secret(services: WebhookServices, call: Call) -> WebhookWithSecret:
    """Give the webhook a new secret, shown this once.

    The old one stays valid for 24 hours: until then deliveries have a `v1` of each.
    """
    return await services.subscriptions.rotate_secret(call.account_id, call.path("webhookId"))


async def _delivery(services: WebhookServices, call: Call) -> deliveries.Delivery:
    """Return the delivery that the path names.

    Raises:
        ApiError: 404, it is not a delivery of this webhook, or the webhook is not the account's.
    """
    webhook = await services.subscriptions.get(call.account_id, call.path("webhookId"))
    delivery_id = call.path("deliveryId")
    delivery = await deliveries.by_id(services.database, webhook.id, delivery_id)
    if delivery is None:
        raise not_found(f"No delivery {delivery_id!r} of this webhook")
    return delivery


_PATH = "/api/v1/webhooks"
_ONE = f"{_PATH}/{{webhookId}}"
_SCOPE = Scope.WEBHOOK_MANAGE
_TAG = "Webhooks"

_endpoint = partial(Endpoint, scope=_SCOPE, tag=_TAG)

ENDPOINTS: list[Endpoint[WebhookServices]] = [
    _endpoint(
        method="GET",
        path=_PATH,
        summary="List webhooks",
        handler=list_webhooks,
        response=WebhookList,
    ),
    _endpoint(
        method="POST",
        path=_PATH,
        recent_login=True,
        summary="Create a webhook",
        handler=create_webhook,
        response=WebhookWithSecret,
        body=WebhookRequest,
        status=201,
    ),
    _endpoint(
        method="PATCH",
        path=_ONE,
        recent_login=True,
        summary="Switch a webhook on or off",
        handler=change_webhook,
        response=Webhook,
        body=WebhookChange,
    ),
    _endpoint(
        method="DELETE",
        path=_ONE,
        recent_login=True,
        summary="Delete a webhook",
        handler=delete_webhook,
        response=Deleted,
    ),
    _endpoint(
        method="GET",
        path=f"{_ONE}/deliveries",
        summary="List deliveries",
        handler=list_deliveries,
        response=DeliveryList,
        query=DeliveryQuery,
    ),
    _endpoint(
        method="GET",
        path=f"{_ONE}/deliveries/{{deliveryId}}",
        summary="Read a delivery",
        handler=read_delivery,
        response=DeliveryDetails,
    ),
    _endpoint(
        method="POST",
        path=f"{_ONE}/test",
        recent_login=True,
        summary="Send a test",
        handler=test_webhook,
        response=Delivered,
    ),
    _endpoint(
        method="POST",
        path=f"{_ONE}/deliveries/{{deliveryId}}/resend",
        recent_login=True,
        summary="Deliver an event again",
        handler=resend_delivery,
        response=Delivered,
    ),
    _endpoint(
        method="POST",
        path=f"{_ONE}/replay",
        recent_login=True,
        summary="Deliver what has failed again",
        handler=replay_deliveries,
        response=Replayed,
        body=ReplayRequest,
    ),
    _endpoint(
        method="POST",
        path=f"{_ONE}/rotate-secret",
        recent_login=True,
        summary="Rotate the secret",
        handler=rotate_secret,
        response=WebhookWithSecret,
    ),
]
