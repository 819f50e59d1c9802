"""Webhooks and their deliveries, as the API shows them. Times are epoch milliseconds."""

from typing import Annotated, Literal

from msgspec import Meta

from outrider.contract.events import EventName
from outrider.contract.structs import Wire
from outrider.contract.text import DELIVERY_ID

DeliveryStatus = Literal["pending", "succeeded", "failed"]
Event = Annotated[str, Meta(extra_json_schema={"enum": list(EventName)})]
"""An event's name. It is text, so that what an older service has stored can be shown."""

Subscribed = Annotated[str, Meta(extra_json_schema={"enum": [*EventName, "*"]})]
"""An event's name, or `*` for all of them. What it may be is checked where it is used."""


class LastDelivery(Wire, kw_only=True):
    """The newest delivery of a webhook that is over, or that will be tried again."""

    id: str
    """The delivery's id."""
    event: Event
    """The event's name."""
    status: DeliveryStatus
    """What has come of it."""
    status_code: int | None
    """The receiver's HTTP status; null where there was no answer."""
    at: int
    """When the newest attempt ended, in epoch milliseconds."""


class Webhook(Wire, kw_only=True):
    """A subscription of a URL to events."""

    id: str
    """The webhook's id."""
    url: str
    """Where events are sent to."""
    events: list[Subscribed]
    """The events that it is subscribed to; `*` stands for all."""
    active: bool
    """Whether it is sent events."""
    created_at: int
    """When it was created, in epoch milliseconds."""
    updated_at: int
    """When it was last changed, in epoch milliseconds."""
    last_delivery: LastDelivery | None
    """The newest delivery that is over or will be tried again; null before the first one."""
    disabled_reason: str | None
    """Why the service has switched it off; null where it has not."""


class WebhookWithSecret(Webhook, kw_only=True):
    """A webhook with its signing secret, which is shown this once."""

    secret: str
    """The secret that signs the deliveries. It is shown this once."""


class WebhookList(Wire, kw_only=True):
    """The account's webhooks, oldest first."""

    webhooks: list[Webhook]
    """The webhooks."""


class WebhookRequest(Wire, kw_only=True):
    """A new subscription."""

    url: Annotated[str, Meta(min_length=1, max_length=2048, extra_json_schema={"format": "uri"})]
    """Where to send events to: `http` or `https`, without credentials in it."""
    events: Annotated[list[Subscribed], Meta(min_length=1, max_length=32)]
    """The events to subscribe to; `*` stands for all."""


class WebhookChange(Wire, kw_only=True):
    """What is to change of a subscription."""

    active: bool
    """Whether it is to be sent events."""


class Attempt(Wire, kw_only=True):
    """One attempt to deliver an event."""

    attempt: int
    """The attempt's number, from 1."""
    status_code: int | None
    """The receiver's HTTP status; null where there was no answer."""
    response_body: str | None
    """The first 16 KiB of the receiver's answer; null where there was none."""
    error: str | None
    """Why there was no answer; null where there was one."""
    started_at: int
    """When it began, in epoch milliseconds."""
    duration_ms: int
    """Milliseconds that it took."""


class Delivery(Wire, kw_only=True):
    """An event on its way to a webhook; the fields of its newest attempt are its own."""

    id: str
    """The delivery's id."""
    webhook_id: str
    """The webhook that it goes to."""
    event_id: str
    """The event's id: the same in every repeat."""
    event: Event
    """The event's name."""
    status: DeliveryStatus
    """`pending` while attempts are to come."""
    status_code: int | None
    """The receiver's HTTP status in the newest attempt; null where there was no answer."""
    response_body: str | None
    """The first 16 KiB of the receiver's newest answer; null where there was none."""
    error: str | None
    """Why the newest attempt had no answer; null where it had one."""
    attempt: int
    """The number of attempts so far."""
    duration_ms: int | None
    """Milliseconds that the newest attempt took; null before the first one."""
    created_at: int
    """When the event happened, in epoch milliseconds."""
    completed_at: int | None
    """When the last attempt ended, in epoch milliseconds; null while more are to come."""
    next_attempt_at: int | None
    """When the next attempt is due, in epoch milliseconds; null where none is."""
    attempts: list[Attempt]
    """Every attempt so far, oldest first."""


class DeliveryList(Wire, kw_only=True):
    """Deliveries, newest first."""

    deliveries: list[Delivery]
    """The deliveries."""


class DeliveryQuery(Wire, kw_only=True):
    """Which deliveries."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    """How many deliveries, at most."""
    before: Annotated[str, Meta(pattern=DELIVERY_ID)] | None = None
    """The id of a delivery: only older ones."""


class Delivered(Wire, kw_only=True):
    """A delivery after its first attempt."""

    success: bool
    """Whether the receiver took it."""
    delivery: Delivery
    """The delivery after its first attempt."""


class ReplayRequest(Wire, kw_only=True):
    """Which failed deliveries are to be made again."""

    since: Annotated[int, Meta(ge=0)]
    """Deliver again what has failed since then, in epoch milliseconds."""


class Replayed(Wire, kw_only=True):
    """How many deliveries are made again."""

    success: bool = True
    """Always true: an error has another body."""
    count: int
    """How many deliveries are made again."""
