"""Webhooks and their deliveries, as the API shows them. Times are epoch milliseconds."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from outrider.contract.events import EventName
from outrider.contract.structs import Timestamp, Wire
from outrider.contract.text import DELIVERY_ID

DeliveryStatus = Literal["pending", "succeeded", "failed"]
Event = Annotated[str, Meta(extra_json_schema={"enum": list(EventName)})]
"""An event's name. Any text, so that events stored by an older service can be shown."""

Subscribed = Annotated[str, Meta(extra_json_schema={"enum": [*EventName, "*"]})]
"""An event's name, or `*` for all of them and those of later releases; checked by the endpoint."""


class LastDelivery(Wire, kw_only=True):
    """The newest delivery of a webhook that has ended or will be retried."""

    id: str
    """The delivery's id."""
    event: Event
    """The event's name."""
    status: DeliveryStatus
    """The delivery's status."""
    status_code: int | None
    """The receiver's HTTP status; null if there was no response."""
    at: int
    """When the newest attempt ended, in epoch milliseconds."""


class Webhook(Wire, kw_only=True):
    """A subscription of a URL to events."""

    id: str
    """The webhook's id."""
    url: str
    """The URL that events are sent to."""
    events: list[Subscribed]
    """The events that it is subscribed to; `*` stands for all."""
    active: bool
    """Whether events are sent to it."""
    created_at: int
    """When it was created, in epoch milliseconds."""
    updated_at: int
    """When it was last changed, in epoch milliseconds."""
    last_delivery: LastDelivery | None
    """The newest delivery that has ended or will be retried; null before the first one."""
    disabled_reason: str | None
    """Why the service has disabled it; null if it has not."""


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
    """The URL to send events to: `http` or `https`, without credentials."""
    events: Annotated[list[Subscribed], Meta(min_length=1, max_length=32)]
    """The events to subscribe to; `*` stands for all."""


class WebhookChange(Wire, kw_only=True):
    """A change of a subscription."""

    active: bool
    """Whether to send events to it."""


class Attempt(Wire, kw_only=True):
    """One attempt to deliver an event."""

    attempt: int
    """The attempt's number, from 1."""
    status_code: int | None
    """The receiver's HTTP status; null if there was no response."""
    response_body: str | None
    """The first 16 KiB of the receiver's response; null if there was none."""
    error: str | None
    """Why the attempt failed; null if the receiver accepted it."""
    started_at: int
    """When it began, in epoch milliseconds."""
    duration_ms: int
    """Its duration in milliseconds."""


class Delivery(Wire, kw_only=True):
    """The delivery of an event to a webhook, with the fields of its newest attempt."""

    id: str
    """The delivery's id."""
    webhook_id: str
    """The webhook's id."""
    event_id: str
    """The event's id: the same in every delivery of the event."""
    event: Event
    """The event's name."""
    status: DeliveryStatus
    """`pending` while more attempts follow."""
    status_code: int | None
    """The receiver's HTTP status in the newest attempt; null if there was no response."""
    response_body: str | None
    """The first 16 KiB of the receiver's newest response; null if there was none."""
    error: str | None
    """Why the newest attempt failed; null if the receiver accepted it."""
    attempt: int
    """The number of attempts so far."""
    duration_ms: int | None
    """The duration of the newest attempt in milliseconds; null before the first one."""
    created_at: int
    """When the delivery was created, in epoch milliseconds."""
    completed_at: int | None
    """When the last attempt ended, in epoch milliseconds; null while more attempts follow."""
    next_attempt_at: int | None
    """When the next attempt is due, in epoch milliseconds; null if there is none."""
    attempts: list[Attempt]
    """Every attempt so far, oldest first."""


class DeliveryDetails(Delivery, kw_only=True):
    """A delivery, and the request that it makes."""

    request_headers: dict[str, str]
    """The request's headers, those of the newest attempt. The signature differs in each attempt and
    is not stored.
    """
    request_body: str
    """The request's body, the same in every attempt."""


class DeliveryList(Wire, kw_only=True):
    """Deliveries, newest first."""

    deliveries: list[Delivery]
    """The deliveries."""
    cursor: str | UnsetType = UNSET
    """What to give as `before` for the next page; absent if there is none. A page ends after
    `limit` deliveries, or before that after 4 MiB."""


class DeliveryQuery(Wire, kw_only=True):
    """Selects deliveries."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    """How many deliveries, at most."""
    before: Annotated[str, Meta(pattern=DELIVERY_ID)] | None = None
    """The id of a delivery: only older ones."""


class Delivered(Wire, kw_only=True):
    """A delivery after its first attempt."""

    success: bool
    """Whether the receiver accepted it."""
    delivery: Delivery
    """The delivery after its first attempt."""


class ReplayRequest(Wire, kw_only=True):
    """Selects the failed deliveries to repeat."""

    since: Timestamp
    """Repeat deliveries that failed since this time, in epoch milliseconds."""


class Replayed(Wire, kw_only=True):
    """The number of repeated deliveries."""

    success: bool = True
    """Always true: errors have another body."""
    count: int
    """The number of repeated deliveries."""
