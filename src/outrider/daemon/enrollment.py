"""Connecting this machine to an account, for a token that stays.

With a one-time code, or by a user's approval after RFC 8628: the machine shows a short code
and asks every few seconds whether a user has approved it.
"""

import socket
import sys
import time
from collections.abc import Callable
from typing import Final

from outrider import __version__
from outrider.contract.enrollment import (
    DeviceAuthorization,
    Enrolled,
    EnrollRequest,
    MachineInfo,
    TokenRequest,
)
from outrider.contract.errors import ErrorCode
from outrider.contract.text import MAX_NAME, printable
from outrider.daemon.calling import EnrollmentError, RefusedError, UnavailableError, ask
from outrider.daemon.settings import Connection, DaemonSettings, SettingsError, server_url

ENROLL_PATH: Final = "/api/v1/auth/enroll"
DEVICE_PATH: Final = "/api/v1/auth/device"
TOKEN_PATH: Final = "/api/v1/auth/device/token"  # noqa: S105

_SLOWER_SECONDS: Final = 5.0  # RFC 8628, section 3.5
_LONGEST_PAUSE: Final = 60.0

__all__ = ["EnrollmentError", "enroll", "enroll_by_approval"]


def enroll(
    settings: DaemonSettings, server: str, code: str, nickname: str | None = None
) -> Connection:
    """Connect this machine to the account that `code` is of, and remember the connection.

    Enrolling again keeps the machine's id, where it is the same server. Takes up to 15 s.

    Raises:
        EnrollmentError: the service cannot be reached or refuses the code.
        SettingsError: `server` is not a URL, or the connection cannot be written.
    """
    server = server_url(server)
    settings.make_directory()  # before the code is used up
    request = EnrollRequest(
        code=code.strip(),
        hostname=printable(socket.gethostname())[:MAX_NAME],
        platform=sys.platform,
        version=__version__,
        nickname=nickname,
        daemon_id=_earlier_id(settings, server),
    )
    return _kept(settings, server, ask(server, ENROLL_PATH, request, Enrolled))


def enroll_by_approval(
    settings: DaemonSettings,
    server: str,
    nickname: str | None = None,
    *,
    show: Callable[[DeviceAuthorization], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Connection:
    """Connect this machine to the account of the user who approves it, and remember that.

    Waits until the user has decided or the code expires, ten minutes with the usual service;
    one that is out of reach for a while meanwhile is asked again. As `enroll` keeps the id.

    Args:
        show: shows the user the page and the code.
        clock: seconds, of any beginning.

    Raises:
        EnrollmentError: the user refuses or does nothing, or the service cannot be reached.
        SettingsError: `server` is not a URL, or the connection cannot be written.
    """
    server = server_url(server)
    settings.make_directory()
    request = MachineInfo(
        hostname=printable(socket.gethostname())[:MAX_NAME],
        platform=sys.platform,
        version=__version__,
        nickname=nickname,
        daemon_id=_earlier_id(settings, server),
    )
    asked = ask(server, DEVICE_PATH, request, DeviceAuthorization)
    end = clock() + asked.expires_in
    asked.user_code = printable(asked.user_code)
    asked.verification_uri = printable(asked.verification_uri)
    asked.verification_uri_complete = printable(asked.verification_uri_complete)
    show(asked)
    interval = pause = max(1.0, float(asked.interval))
    while clock() + pause < end:
        sleep(pause)
        try:
            token = TokenRequest(device_code=asked.device_code)
            return _kept(settings, server, ask(server, TOKEN_PATH, token, Enrolled))
        except UnavailableError:
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        except RefusedError as refusal:
            match refusal.code:
                case ErrorCode.AUTHORIZATION_PENDING:
                    pause = interval
                case ErrorCode.SLOW_DOWN:
                    interval += _SLOWER_SECONDS
                    pause = interval
                case ErrorCode.RATE_LIMITED:
                    pause = max(interval, refusal.wait or 0.0)
                case _:
                    raise
    raise EnrollmentError("Nobody has approved this machine in time: run setup again")


def _kept(settings: DaemonSettings, server: str, enrolled: Enrolled) -> Connection:
    connection = Connection(
        server=server,
        daemon_id=enrolled.daemon_id,
        token=enrolled.token,
        nickname=enrolled.nickname,
    )
    settings.save_connection(connection)
    return connection


def _earlier_id(settings: DaemonSettings, server: str) -> str | None:
    try:
        earlier = settings.load_connection()
    except SettingsError:
        return None  # there is none, or none that can be read: it is about to be replaced
    return earlier.daemon_id if earlier.server == server else None
