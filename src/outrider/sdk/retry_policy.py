"""Which requests are sent again, and when. Free of I/O.

A POST has an `Idempotency-Key`, the same in each attempt, so that the service carries it out once.
A DELETE is not sent again if it may have been carried out: it would not be found.
"""

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

from outrider.contract.errors import ErrorCode

MAX_RETRY_AFTER: Final = 60.0
"""Seconds; where the service asks for more, the error is raised instead."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After`, None if there are none."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None


class RetryPolicy(NamedTuple):
    """Decides after each failed attempt. It returns the seconds to wait, None to give up.

    Attributes:
        max_retries: attempts after the first.
        first_delay: seconds before the first retry; doubled for each further one.
    """

    max_retries: int
    first_delay: float

    def after_response(
        self, retries: int, status: int, headers: Mapping[str, str], code: str | None
    ) -> float | None:
        """Decide after an error response."""
        # A repeated request may overtake the first one, which then still holds its key.
        in_flight = status == 409 and code == ErrorCode.IDEMPOTENCY_IN_FLIGHT
        if retries >= self.max_retries or not (status in {429, 503} or in_flight):
            return None
        seconds = retry_after(headers)
        if seconds is None:
            return self.delay(retries)
        return seconds if seconds <= MAX_RETRY_AFTER else None

    def after_failure(self, retries: int, method: str, *, was_sent: bool) -> float | None:
        """Decide after a connection failed. `was_sent`: the service may have got the request."""
        if retries >= self.max_retries or (method == "DELETE" and was_sent):
            return None
        return self.delay(retries)

    def delay(self, retries: int) -> float:
        """Return the seconds to wait after so many retries, if the service does not say it."""
        longest = self.first_delay * 2.0 ** min(retries, 8)
        return longest * (0.75 + random.random() / 4)  # noqa: S311  # spreads clients
