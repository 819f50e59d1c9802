"""Webhooks and their deliveries, as the API shows them. Times are epoch milliseconds."""

from typing import Annotated, Literal

from msgspec import Meta

from outrider.contract.structs import Wire
from outrider.contract.text import DELIVERY_ID

DeliveryStatus = Literal["pending", "succeeded", "failed"]
Events = Annotated[list[str], Meta(min_length=1, max_length=32)]


class LastDelivery(Wire, kw_only=True):
    """The newest delivery of a webhook that is over, or that will be tried again."""

    id: str
    event: str
    status: DeliveryStatus
    status_code: int | None
    at: int


class Webhook(Wire, kw_only=True):
    """A subscription. `disabled_reason` says why the service has switched it off."""

    id: str
    url: str
    events: list[str]
    active: bool
    created_at: int
    updated_at: int
    last_delivery: LastDelivery | None
    disabled_reason: str | None


class WebhookWithSecret(Webhook, kw_only=True):
    """A webhook with its signing secret, which is shown this once."""

    secret: str


class WebhookList(Wire, kw_only=True):
    """The account's webhooks, oldest first."""

    webhooks: list[Webhook]


class WebhookRequest(Wire, kw_only=True):
    """A new subscription. `events` may be `["*"]` for all of them."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    events: Events


class WebhookChange(Wire, kw_only=True):
    """What is to change of a subscription."""

    active: bool


class Attempt(Wire, kw_only=True):
    """One try to deliver. Without a status code there was no answer: `error` says why."""

    attempt: int
    status_code: int | None
    response_body: str | None
    error: str | None
    started_at: int
    duration_ms: int


class Delivery(Wire, kw_only=True):
    """An event on its way to a webhook; the fields of its newest attempt are its own."""

    id: str
    webhook_id: str
    event_id: str
    event: str
    status: DeliveryStatus
    status_code: int | None
    response_body: str | None
    error: str | None
    attempt: int
    duration_ms: int | None
    created_at: int
    completed_at: int | None
    next_attempt_at: int | None
    attempts: list[Attempt]


class DeliveryList(Wire, kw_only=True):
    """Deliveries, newest first."""

    deliveries: list[Delivery]


class DeliveryQuery(Wire, kw_only=True):
    """How many deliveries, and the id of the one that they must be older than."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    before: Annotated[str, Meta(pattern=DELIVERY_ID)] | None = None


class Delivered(Wire, kw_only=True):
    """A delivery after its first attempt; `success` tells whether the receiver took it."""

    success: bool
    delivery: Delivery


class ReplayRequest(Wire, kw_only=True):
    """From when on failed deliveries are to be made again (epoch milliseconds)."""

    since: Annotated[int, Meta(ge=0)]


class Replayed(Wire, kw_only=True):
    """How many deliveries are made again."""

    success: bool = True
    count: int
