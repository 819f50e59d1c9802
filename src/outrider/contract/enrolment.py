"""Joining an account: what a machine says of itself, and what it is given.

With a one-time code, or with a device code after RFC 8628: the machine shows a short code,
a user approves it in the dashboard, and the machine, which has asked all the while, is let in.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from outrider.contract.structs import Wire
from outrider.contract.text import Name, ShortName

POLL_SECONDS: Final = 5
"""Seconds that a machine waits between two questions for its token."""

DEVICE_CODE_SECONDS: Final = 600
"""Seconds for which a device code can be approved."""


class MachineInfo(Wire, kw_only=True):
    """What a machine tells of itself. `daemon_id` is its id where it was enrolled before."""

    hostname: Annotated[Name, Meta(min_length=1)]
    platform: Annotated[ShortName, Meta(min_length=1)]
    version: ShortName = ""
    nickname: Name | None = None
    daemon_id: Name | None = None


class EnrolRequest(MachineInfo, kw_only=True):
    """A machine with a one-time code."""

    code: Name


class Enrolled(Wire, kw_only=True):
    """The machine's id, and the token that opens its connection: shown this once."""

    daemon_id: str
    token: str
    nickname: str


class DeviceAuthorization(Wire, kw_only=True):
    """A device code for the machine, and a user code for its user (RFC 8628, section 3.2).

    `expires_in` and `interval` are seconds.
    """

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: int


class TokenRequest(Wire, kw_only=True):
    """A machine that asks whether its device code has been approved."""

    device_code: Name


class DeviceDecision(Wire, kw_only=True):
    """A user's answer to a machine that wants to join the account."""

    user_code: Name
    action: Literal["approve", "reject"] = "approve"


class OneTimeCode(Wire, kw_only=True):
    """A code for `outrider setup --code`, and when it expires (epoch milliseconds)."""

    code: str
    expires_at: int


class OneTimeCodeRequest(Wire, kw_only=True):
    """Asks for a one-time code; the machine gets the nickname."""

    nickname: Name | None = None
