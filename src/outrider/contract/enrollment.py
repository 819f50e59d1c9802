"""Enrollment: connecting a machine to an account, in exchange for a connection token.

With a one-time code, or with a device code (RFC 8628): the machine shows a short code, a user
approves it in the dashboard, and the machine, which polls the service, receives its token.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from outrider.contract.structs import Wire
from outrider.contract.text import Name, ShortName

POLL_SECONDS: Final = 5
"""Seconds between two polls of a machine for its token."""

DEVICE_CODE_SECONDS: Final = 600
"""Seconds for which a device code can be approved."""


class MachineInfo(Wire, kw_only=True):
    """What a machine reports about itself."""

    hostname: Annotated[Name, Meta(min_length=1)]
    """The machine's name in its network."""
    platform: Annotated[ShortName, Meta(min_length=1)]
    """The operating system: `linux`, `darwin`, …"""
    version: ShortName = ""
    """The version of the machine agent."""
    nickname: Name | None = None
    """What its user calls the machine. Without it, the host name."""
    daemon_id: Name | None = None
    """The machine's id, if it was enrolled with this service before: it keeps that id."""


class ReplacedMachine(Wire, kw_only=True):
    """The machine of the account that a waiting machine would replace."""

    id: str
    """The machine's id."""
    nickname: str
    """What the machine is called."""


class WaitingDevice(MachineInfo, kw_only=True):
    """A machine that waits for a user's approval, and where its request came from."""

    address: str | None
    """The address of the request; null if a node of an older release received it."""
    requested_at: int
    """The time of the request, in epoch milliseconds."""
    replaces: ReplacedMachine | None
    """The machine of this account that it would replace; null if it is a new one."""


class EnrollRequest(MachineInfo, kw_only=True):
    """A machine with a one-time code."""

    code: Name
    """The one-time code."""


class Enrolled(Wire, kw_only=True):
    """A machine that has been enrolled."""

    daemon_id: str
    """The machine's id."""
    token: str
    """The token that opens the machine's connection. It is shown this once."""
    nickname: str
    """What the machine is called."""


class DeviceAuthorization(Wire, kw_only=True):
    """A device code for the machine, and a user code for its user (RFC 8628, section 3.2)."""

    device_code: str
    """The machine's secret, with which it requests its token."""
    user_code: str
    """The code that the machine shows its user."""
    verification_uri: str
    """Where the user enters the code."""
    verification_uri_complete: str
    """The same page, with the code filled in."""
    expires_in: int
    """Seconds for which the code can be approved."""
    interval: int
    """Seconds that the machine waits between two polls for its token."""


class TokenRequest(Wire, kw_only=True):
    """A machine's poll for its token: has its device code been approved?"""

    device_code: Name
    """The device code, as it was given."""


class DeviceDecision(Wire, kw_only=True):
    """A user's decision about a machine that wants to join the account."""

    user_code: Name
    """The code that the machine shows. Case, spaces and dashes do not matter."""
    action: Literal["approve", "reject"] = "approve"
    """Whether to approve or reject the machine."""


class OneTimeCode(Wire, kw_only=True):
    """A one-time code with which a machine joins the account."""

    code: str
    """The code, for `outrider setup --code`. It is valid for one machine."""
    expires_at: int
    """When it expires, in epoch milliseconds."""


class OneTimeCodeRequest(Wire, kw_only=True):
    """A request for a one-time code."""

    nickname: Name | None = None
    """The machine's nickname. Without it, its host name."""
