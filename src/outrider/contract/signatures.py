"""The signature of a webhook delivery: `t=<epoch milliseconds>,v1=<hex>[,v1=<hex>]`.

HMAC-SHA256 over `<t>.<raw body>`, keyed with the webhook's secret; one `v1` for each valid
secret, the newest first (the scheme of Stripe's libraries).
"""

import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple

SIGNATURE_HEADER: Final = "X-Service-Signature"
EVENT_HEADER: Final = "X-Service-Event"
DELIVERY_HEADER: Final = "X-Service-Delivery"
ATTEMPT_HEADER: Final = "X-Service-Attempt"


class Signature(NamedTuple):
    """A parsed signature header."""

    timestamp: int
    digests: tuple[str, ...]


def digest(secret: str, timestamp: int, body: bytes) -> str:
    """Return the hex digest of a body that was signed at `timestamp`."""
    return hmac.digest(secret.encode(), b"%d.%b" % (timestamp, body), "sha256").hex()


def header(secrets: Sequence[str], timestamp: int, body: bytes) -> str:
    """Return the signature header, signed with each of the secrets."""
    parts = [f"v1={digest(secret, timestamp, body)}" for secret in secrets]
    return ",".join([f"t={timestamp}", *parts])


def parse(text: str) -> Signature | None:
    """Return the parsed signature header, or None if it is malformed."""
    pairs = [part.strip().partition("=") for part in text.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    digests = tuple(value for name, _, value in pairs if name == "v1")
    if len(times) != 1 or not times[0].isascii() or not times[0].isdigit() or not digests:
        return None
    if len(times[0]) > 16:
        return None
    return Signature(int(times[0]), digests)
