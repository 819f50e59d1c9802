"""`outrider events`: print the account's events, and forward them to a local receiver."""

import secrets
import sys
import time
from typing import Annotated, Final

import httpx2
import typer

from outrider import __version__
from outrider.cli.client.output import UsageError, session
from outrider.cli.printing import print_text
from outrider.contract.signatures import (
    ATTEMPT_HEADER,
    DELIVERY_HEADER,
    EVENT_HEADER,
    SIGNATURE_HEADER,
    header,
)
from outrider.sdk import Event

_FORWARD_SECONDS: Final = 10.0


def events(
    events: Annotated[
        str | None,
        typer.Option(
            "--events", metavar="NAMES", help="Only these, such as `agent:*,machine:connected`."
        ),
    ] = None,
    forward_to: Annotated[
        str | None,
        typer.Option(
            "--forward-to",
            metavar="URL",
            help="Post each event there, signed as webhooks are; prints the secret first.",
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Begin after this event.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print what happens, until Ctrl-C."""
    with session(as_json=as_json) as client:
        forwarder = None if forward_to is None else Forwarder(forward_to)
        if forwarder is not None:
            print_text(forwarder.secret)
        for event in client.events(events, after=after):
            if as_json:
                sys.stdout.write(event.body + "\n")
                sys.stdout.flush()
            else:
                print_text(_line(event))
            if forwarder is not None:
                print(f"  {forwarder.forward(event)}", file=sys.stderr, flush=True)


def _line(event: Event) -> str:
    moment = time.strftime("%H:%M:%S", time.localtime(event.timestamp / 1000))
    title = event.payload.get("chatTitle") or event.payload.get("nickname") or ""
    target = event.session_id or event.daemon_id or ""
    return f"{moment}  {event.event}  {target}  {title}".rstrip()


class Forwarder:
    """Posts events to a receiver of webhooks on this computer.

    Args:
        url: where to post them.

    Attributes:
        secret: signs the bodies; the receiver verifies with it.

    Raises:
        UsageError: the URL is none.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = httpx2.URL(url)
            is_address = parts.scheme in {"http", "https"} and parts.host
        except (httpx2.InvalidURL, UnicodeError):
            is_address = False
        if not is_address:
            raise UsageError(f"{url!r} is not an address to forward to: give http://host:port/path")
        self._url = url
        self.secret = f"whsec_{secrets.token_urlsafe(32)}"
        self._http = httpx2.Client(timeout=_FORWARD_SECONDS)

    def forward(self, event: Event) -> str:
        """Post an event, and return the outcome."""
        body = event.body.encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"outrider/{__version__}",
            SIGNATURE_HEADER: header([self.secret], time.time_ns() // 1_000_000, body),
            EVENT_HEADER: event.event,
            DELIVERY_HEADER: event.id,
            ATTEMPT_HEADER: "1",
        }
        try:
            status = self._http.post(self._url, content=body, headers=headers).status_code
        except (httpx2.HTTPError, UnicodeError) as error:
            return f"{self._url} did not take it: {error or type(error).__name__}"
        return f"{self._url} answered {status}"
