"""Enrollment: a machine exchanges a code for a connection token and joins an account.

The operator or the dashboard issues one-time codes. A machine requests a device code (RFC 8628)
itself and polls every few seconds until a user approves or denies it.
"""

import time
from collections.abc import Callable
from typing import Final

import msgspec

from outrider.contract.enrollment import (
    DEVICE_CODE_SECONDS,
    POLL_SECONDS,
    DeviceAuthorization,
    Enrolled,
    EnrollRequest,
    MachineInfo,
    OneTimeCode,
    ReplacedMachine,
    WaitingDevice,
)
from outrider.contract.errors import ApiError, ErrorCode, bad_request, checked_name, not_found
from outrider.contract.ids import new_id
from outrider.service.accounts import credentials
from outrider.service.accounts.store import devices
from outrider.service.database.engine import Database
from outrider.service.machines.store import machines

CODE_SECONDS: Final = 600
"""Seconds for which a one-time code can be used."""

_EARLY_MILLIS: Final = 1000
"""Tolerance: how much earlier than the interval a machine may poll without `slow_down`."""


class Enrollment:
    """Issues and redeems codes; looks up connection tokens.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def machine(self, token: str) -> tuple[machines.Machine, bytes] | None:
        """Return the machine that a connection token authenticates, and the token's digest.

        The machine's `snapshot` is not loaded.
        """
        if not token.startswith(credentials.MACHINE_PREFIX):
            return None
        digest = credentials.digest(token)
        machine = await machines.by_token(self._database, digest)
        return None if machine is None else (machine, digest)

    async def new_code(self, account_id: str, nickname: str | None) -> OneTimeCode:
        """Issue a one-time code that enrolls one machine in the account.

        Raises:
            ApiError: 400, `nickname` is too long or not printable.
        """
        if nickname is not None:
            checked_name(nickname, "nickname")
        code, now = credentials.new_code(), self._now()
        expires_at = now + CODE_SECONDS * 1000
        await machines.add_code(
            self._database,
            digest=credentials.digest(code),
            enrollment=machines.Enrollment(account_id, nickname),
            now=now,
            expires_at=expires_at,
        )
        return OneTimeCode(code=code, expires_at=expires_at)

    async def redeem(self, request: EnrollRequest) -> tuple[str, Enrolled]:
        """Enroll a machine with a one-time code; return the account id and the result.

        A machine that the account has enrolled before keeps its id.

        Raises:
            ApiError: 400, the code does not exist, has been used, or has expired.
        """
        digest = credentials.digest(credentials.canonical_code(request.code))
        enrollment = await machines.take_code(self._database, digest, self._now())
        if enrollment is None:
            raise bad_request(
                "This code is not valid: it is mistyped, used already, or older than "
                f"{CODE_SECONDS // 60} minutes. Make a new one with `outrider admin enroll`",
                "code",
            )
        enrolled = await self._enroll(
            enrollment.account_id, request, request.nickname or enrollment.nickname
        )
        return enrollment.account_id, enrolled

    async def authorize_device(
        self, machine: MachineInfo, page: str, address: str | None = None
    ) -> DeviceAuthorization:
        """Issue a device code.

        Args:
            page: the URL where the user approves it.
            address: the machine's address, shown to the user.
        """
        device_code, user_code, now = (
            credentials.new_token(),
            credentials.new_user_code(),
            self._now(),
        )
        await devices.add(
            self._database,
            digest=credentials.digest(device_code),
            user_code_digest=credentials.digest(user_code),
            machine=msgspec.json.encode(machine),
            address=None if address is None else address[:64],
            now=now,
            expires_at=now + DEVICE_CODE_SECONDS * 1000,
        )
        return DeviceAuthorization(
            device_code=device_code,
            user_code=user_code,
            verification_uri=page,
            verification_uri_complete=f"{page}?code={user_code}",
            expires_in=DEVICE_CODE_SECONDS,
            interval=POLL_SECONDS,
        )

    async def knows_device(self, device_code: str) -> bool:
        """Return whether a device code exists: waiting, approved, denied or expired."""
        return await devices.exists(self._database, credentials.digest(device_code))

    async def device_token(self, device_code: str) -> tuple[str, Enrolled]:
        """Enroll the machine if a user has approved it; return the account id and the result.

        Of concurrent calls with one code, only one succeeds: it deletes the code first.

        Raises:
            ApiError: 400 with the code of RFC 8628, section 3.5: `authorization_pending`,
                `slow_down`, `access_denied` or `expired_token`.
        """
        digest, now = credentials.digest(device_code), self._now()
        device = await devices.polled(self._database, digest, now)
        if device is None or device.expires_at <= now:
            raise _device_error(
                ErrorCode.EXPIRED_TOKEN, "This code has expired or was used: run setup again"
            )
        if device.denied:
            raise _device_error(ErrorCode.ACCESS_DENIED, "The user has refused this machine")
        if device.account_id is None:
            if now - device.polled_at < POLL_SECONDS * 1000 - _EARLY_MILLIS:
                raise _device_error(
                    ErrorCode.SLOW_DOWN, f"Ask every {POLL_SECONDS} seconds, not more often"
                )
            raise _device_error(
                ErrorCode.AUTHORIZATION_PENDING, "The user has not approved this machine yet"
            )
        if not await devices.take(self._database, digest):
            raise _device_error(ErrorCode.EXPIRED_TOKEN, "This code was used a moment ago")
        machine = msgspec.json.decode(device.machine, type=MachineInfo)
        return device.account_id, await self._enroll(device.account_id, machine, machine.nickname)

    async def waiting_device(self, account_id: str, user_code: str) -> WaitingDevice:
        """Return the machine that shows this user code, and the machine that it would replace.

        Raises:
            ApiError: 404, no machine waits with this code.
        """
        digest = credentials.digest(credentials.canonical_code(user_code))
        device = await devices.waiting(self._database, digest, self._now())
        if device is None:
            raise _no_device()
        machine = msgspec.json.decode(device.machine, type=MachineInfo)
        return WaitingDevice(
            **msgspec.structs.asdict(machine),
            address=device.address,
            requested_at=device.created_at,
            replaces=await self._replaced(account_id, machine.daemon_id),
        )

    async def decide_device(self, account_id: str, user_code: str, *, approve: bool) -> None:
        """Approve or deny the machine that shows this user code.

        Raises:
            ApiError: 404, no machine waits with this code.
        """
        digest = credentials.digest(credentials.canonical_code(user_code))
        is_decided = await devices.decide(
            self._database, digest, self._now(), account_id=account_id if approve else None
        )
        if not is_decided:
            raise _no_device()

    async def _replaced(self, account_id: str, daemon_id: str | None) -> ReplacedMachine | None:
        """Return the account's machine with this id, which `_enroll` would replace."""
        if daemon_id is None:
            return None
        row = await machines.by_id(self._database, daemon_id)
        if row is None or row.account_id != account_id:
            return None
        return ReplacedMachine(id=row.id, nickname=row.nickname)

    async def _enroll(
        self, account_id: str, machine: MachineInfo, nickname: str | None
    ) -> Enrolled:
        token = credentials.new_machine_token()
        if machine.daemon_id is not None:
            stored_nickname = await machines.enroll_again(
                self._database,
                machine.daemon_id,
                account_id,
                nickname=nickname or None,  # an empty one does not replace the stored one
                token_hash=credentials.digest(token),
            )
            if stored_nickname is not None:
                return Enrolled(daemon_id=machine.daemon_id, token=token, nickname=stored_nickname)
        enrolled = Enrolled(
            daemon_id=new_id("machine"), token=token, nickname=nickname or machine.hostname
        )
        await machines.enroll(
            self._database,
            machine_id=enrolled.daemon_id,
            account_id=account_id,
            nickname=enrolled.nickname,
            hostname=machine.hostname,
            platform=machine.platform,
            version=machine.version,
            token_hash=credentials.digest(token),
            now=self._now(),
        )
        return enrolled

    def _now(self) -> int:
        return int(self._clock() * 1000)


def _device_error(code: ErrorCode, message: str) -> ApiError:
    return ApiError(400, message, code=code)


def _no_device() -> ApiError:
    return not_found("No machine waits with this code: check it, or run setup on the machine again")
