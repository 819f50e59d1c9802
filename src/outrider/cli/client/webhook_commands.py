"""`outrider webhook …`: subscriptions and their deliveries.

An API key may list them; what changes them needs a user's login.
"""

import sys
import time
from typing import Annotated

import typer

from outrider.cli.client.arguments import AsJson, Email, Yes
from outrider.cli.client.output import ExitCode, confirm, session, user_session
from outrider.cli.counted import counted
from outrider.cli.printing import moment, show_result, show_table
from outrider.contract.webhooks import Attempt, Delivered, Delivery

app = typer.Typer(no_args_is_help=True, help="Webhooks.")

WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's id.")]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id.")]


@app.command("ls")
def list_webhooks(as_json: AsJson = False) -> None:
    """List the webhooks."""
    with session(as_json=as_json) as client:
        webhooks = client.webhooks.list()
        rows = [
            [
                webhook.id,
                "active" if webhook.active else "paused",
                webhook.last_delivery.status if webhook.last_delivery else "",
                ",".join(webhook.events),
                webhook.url,
            ]
            for webhook in webhooks
        ]
        head = ["WEBHOOK", "STATE", "LAST", "EVENTS", "URL"]
        show_table({"webhooks": webhooks}, head, rows, as_json)


@app.command()
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to send events.")],
    events: Annotated[
        str, typer.Option(metavar="NAMES", help="Separated by commas; `*` stands for all.")
    ] = "*",
    email: Email = None,
    as_json: AsJson = False,
) -> None:
    """Subscribe a URL to events; prints the id and the secret, which is shown this once."""
    with user_session(email, as_json=as_json) as client:
        made = client.webhooks.create(url, [name.strip() for name in events.split(",")])
        show_result(made, f"{made.id}\n{made.secret}", as_json)


@app.command()
def pause(webhook: WebhookId, email: Email = None, as_json: AsJson = False) -> None:
    """Send no more events to a webhook."""
    _switch(webhook, email, as_json, active=False)


@app.command()
def resume(webhook: WebhookId, email: Email = None, as_json: AsJson = False) -> None:
    """Send events to a webhook again."""
    _switch(webhook, email, as_json, active=True)


def _switch(webhook: str, email: str | None, as_json: bool, *, active: bool) -> None:
    with user_session(email, as_json=as_json) as client:
        changed = client.webhooks.update(webhook, active=active)
        show_result(changed, f"{webhook} is {'active' if active else 'paused'}", as_json)


@app.command()
def delete(
    webhook: WebhookId, email: Email = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete a webhook with its deliveries."""
    confirm(f"Delete the webhook {webhook} and its deliveries?", yes=yes, as_json=as_json)
    with user_session(email, as_json=as_json) as client:
        show_result(client.webhooks.delete(webhook), f"{webhook} is deleted", as_json)


@app.command("test")
def send_test(webhook: WebhookId, email: Email = None, as_json: AsJson = False) -> None:
    """Send a test event; ends with 1 if the receiver does not accept it."""
    with user_session(email, as_json=as_json) as client:
        _show_delivered(client.webhooks.test(webhook), as_json)


@app.command()
def rotate_secret(webhook: WebhookId, email: Email = None, as_json: AsJson = False) -> None:
    """Print a new secret; the old one stays valid for 24 hours."""
    with user_session(email, as_json=as_json) as client:
        changed = client.webhooks.rotate_secret(webhook)
        show_result(changed, changed.secret, as_json)


@app.command()
def deliveries(
    webhook: WebhookId,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, the newest ones.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the deliveries of a webhook, the newest first."""
    with session(as_json=as_json) as client:
        deliveries = client.webhooks.deliveries(webhook, limit=limit)
        rows = [
            [
                delivery.id,
                moment(delivery.created_at),
                delivery.status,
                delivery.event,
                _outcome(delivery),
            ]
            for delivery in deliveries
        ]
        head = ["DELIVERY", "CREATED", "STATUS", "EVENT", "OUTCOME"]
        show_table({"deliveries": deliveries}, head, rows, as_json)


@app.command()
def delivery(webhook: WebhookId, delivery: DeliveryId, as_json: AsJson = False) -> None:
    """Print a delivery: its request, and what the receiver answered in each attempt."""
    with session(as_json=as_json) as client:
        details = client.webhooks.delivery(webhook, delivery)
        lines = [f"{details.id}  {details.event}  {details.status}"]
        lines += [f"{name}: {value}" for name, value in details.request_headers.items()]
        lines += ["", details.request_body, ""]
        for attempt in details.attempts:
            started = moment(attempt.started_at)
            lines.append(f"{attempt.attempt}  {started}  {_outcome(attempt)}")
            if attempt.response_body:
                lines.append(attempt.response_body)
        show_result(details, "\n".join(lines), as_json)


@app.command()
def resend(
    webhook: WebhookId, delivery: DeliveryId, email: Email = None, as_json: AsJson = False
) -> None:
    """Deliver an event again; ends with 1 if the receiver does not accept it."""
    with user_session(email, as_json=as_json) as client:
        _show_delivered(client.webhooks.resend(webhook, delivery), as_json)


@app.command()
def replay(
    webhook: WebhookId,
    hours: Annotated[float, typer.Option(min=0, help="What has failed in these hours.")] = 24,
    email: Email = None,
    as_json: AsJson = False,
) -> None:
    """Deliver again what has failed."""
    since = int((time.time() - hours * 3600) * 1000)
    with user_session(email, as_json=as_json) as client:
        replayed = client.webhooks.replay(webhook, since=max(0, since))
        text = f"{counted(replayed.count, 'event')} to be delivered again"
        show_result(replayed, text, as_json)


def _show_delivered(delivered: Delivered, as_json: bool) -> None:
    delivery = delivered.delivery
    text = f"{delivery.id}  {delivery.status}  {_outcome(delivery)}"
    show_result(delivered, text, as_json)
    if not delivered.success:
        sys.exit(ExitCode.REFUSED)


def _outcome(sent: Delivery | Attempt) -> str:
    return f"status {sent.status_code}" if sent.status_code else sent.error or ""
