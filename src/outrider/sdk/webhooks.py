"""For receivers of webhooks: verify a delivery's signature and decode its event.

```python
from outrider.sdk import webhooks

event = webhooks.verify(body, request.headers["X-Service-Signature"], secret)
```
"""

import hmac
import time
from typing import Any, Final

import msgspec

from outrider.contract import signatures
from outrider.contract.errors import OutriderError

TOLERANCE: Final = 300.0
"""Default tolerance: seconds by which a delivery's time may differ from this machine's."""


class VerificationError(OutriderError):
    """The delivery cannot be trusted. The base of the errors below."""


class MalformedHeader(VerificationError):
    """There is no signature header, or it is not of the form `t=…,v1=…`."""


class SignatureMismatch(VerificationError):
    """No signature matches: the body was changed, or another secret signed it."""


class TimestampOutOfRange(VerificationError):
    """It was signed too long ago (it may be a replay), or in the future."""


class MalformedBody(VerificationError):
    """The signature is valid, but the body is not a JSON object."""


def verify(
    body: bytes,
    header: str | None,
    secret: str,
    tolerance: float = TOLERANCE,
    *,
    now: float | None = None,
) -> dict[str, Any]:
    """Verify the signature of a delivery and return its event.

    Args:
        body: the request's body exactly as it came, not decoded and encoded again.
        header: the value of `X-Service-Signature`.
        secret: the webhook's secret, `whsec_…`.
        tolerance: seconds that may lie between the signature and now.
        now: seconds since the epoch, in place of this machine's clock.

    Raises:
        VerificationError: the delivery cannot be trusted; answer it with a 400.
        ValueError: `secret` is empty, or `tolerance` is not a positive number.
    """
    if not secret:
        raise ValueError("The secret is empty: anybody could sign with it")
    if not tolerance > 0:
        raise ValueError("The tolerance is a positive number of seconds")
    signature = signatures.parse(header or "")
    if signature is None:
        raise MalformedHeader(
            f"The header {signatures.SIGNATURE_HEADER} is missing or not of the form t=…,v1=…"
        )
    expected = signatures.digest(secret, signature.timestamp, body).encode()
    # Compare every digest, so that the duration does not reveal which one matches.
    matches = [
        hmac.compare_digest(expected, digest.encode(errors="replace"))
        for digest in signature.digests
    ]
    if not any(matches):
        raise SignatureMismatch(
            "The signature does not fit the body: check that the body is the raw one and the "
            "secret is this webhook's"
        )
    # After the signature: the time of a body that nobody signed says nothing.
    apart = abs((time.time() if now is None else now) - signature.timestamp / 1000)
    if apart > tolerance:
        raise TimestampOutOfRange(
            f"The delivery was signed {apart:.0f} seconds from now; {tolerance:g} are allowed"
        )
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError) as error:
        raise MalformedBody(f"The body is not a JSON object: {error}") from error
