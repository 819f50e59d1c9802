"""How a machine joins an account: a one-time code is exchanged for a connection token."""

import time
from collections.abc import Callable
from typing import Final

from outrider.cloud.access import secrets
from outrider.cloud.store import machines
from outrider.cloud.store.database import Database
from outrider.contract.errors import bad_request
from outrider.contract.ids import new_id
from outrider.contract.structs import Wire

CODE_LIFETIME: Final = 600.0
"""Seconds for which a one-time code can be used."""


class EnrolRequest(Wire, kw_only=True):
    """What a machine tells of itself. `daemon_id` is its id where it was enrolled before."""

    code: str
    hostname: str
    platform: str
    version: str = ""
    nickname: str | None = None
    daemon_id: str | None = None


class Enrolled(Wire, kw_only=True):
    """The machine's id, and the token that opens its connection: shown this once."""

    daemon_id: str
    token: str
    nickname: str


class OneTimeCode(Wire, kw_only=True):
    """A code for `outrider setup --code`, and when it expires (epoch milliseconds)."""

    code: str
    expires_at: int


class Enrolment:
    """Makes and redeems one-time codes.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def new_code(self, account_id: str, nickname: str | None) -> OneTimeCode:
        """Make a code that enrols one machine in the account."""
        code, now = secrets.new_code(), self._now()
        expires_at = now + int(CODE_LIFETIME * 1000)
        await machines.add_code(
            self._database,
            digest=secrets.digest(code),
            enrolment=machines.Enrolment(account_id, nickname),
            now=now,
            expires_at=expires_at,
        )
        return OneTimeCode(code=code, expires_at=expires_at)

    async def redeem(self, request: EnrolRequest) -> Enrolled:
        """Enrol a machine. One that the account has enrolled before keeps its id.

        Raises:
            ApiError: 400, the code does not exist, has been used, or has expired.
        """
        digest = secrets.digest(secrets.normal_code(request.code))
        enrolment = await machines.take_code(self._database, digest, self._now())
        if enrolment is None:
            raise bad_request(
                "This code is not valid: it is mistyped, used already, or older than "
                f"{CODE_LIFETIME / 60:.0f} minutes. Make a new one with `outrider admin enroll`",
                "code",
            )
        token = secrets.new_machine_token()
        nickname = request.nickname or enrolment.nickname
        if request.daemon_id is not None:
            kept = await machines.enrol_again(
                self._database,
                request.daemon_id,
                enrolment.account_id,
                nickname=nickname,
                token_hash=secrets.digest(token),
            )
            if kept is not None:
                return Enrolled(daemon_id=request.daemon_id, token=token, nickname=kept)
        enrolled = Enrolled(
            daemon_id=new_id("machine"), token=token, nickname=nickname or request.hostname
        )
        await machines.enrol(
            self._database,
            machine_id=enrolled.daemon_id,
            account_id=enrolment.account_id,
            nickname=enrolled.nickname,
            hostname=request.hostname,
            platform=request.platform,
            version=request.version,
            token_hash=secrets.digest(token),
            now=self._now(),
        )
        return enrolled

    def _now(self) -> int:
        return int(self._clock() * 1000)
