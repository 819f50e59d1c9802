"""`outrider setup` without a code: the machine's side of the device flow."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from outrider.contract.enrollment import DeviceAuthorization, Enrolled
from outrider.contract.errors import ErrorCode
from outrider.contract.structs import Wire
from outrider.machine import enrollment
from outrider.machine.enrollment import (
    EnrollmentError,
    RefusedError,
    UnavailableError,
    enroll_by_approval,
)
from outrider.machine.settings import Connection, DaemonSettings
from tests.rig.people import V1, dashboard
from tests.rig.processes import PROCESS_TIMEOUT
from tests.rig.site import Owner

SERVER = "https://outrider.example"
ASKED = DeviceAuthorization(
    device_code="device",
    user_code="BCDF-GHJK",
    verification_uri=f"{SERVER}/device",
    verification_uri_complete=f"{SERVER}/device?code=BCDF-GHJK",
    expires_in=600,
    interval=5,
)
ENROLLED = Enrolled(daemon_id="machine_7", token="omt_new", nickname="bench")
PENDING = RefusedError("Not yet", ErrorCode.AUTHORIZATION_PENDING, None)
SLOWER = RefusedError("Slow down", ErrorCode.SLOW_DOWN, None)
UNAVAILABLE = UnavailableError("The service cannot be reached")

T = TypeVar("T")


class Play:
    """A service that answers as written, and the time that passes."""

    def __init__(self, *answers: Wire | Exception) -> None:
        self.answers = [ASKED, *answers]
        self.asked: list[tuple[str, Any]] = []
        self.slept: list[float] = []
        self.shown: list[DeviceAuthorization] = []

    def post(self, server: str, path: str, request: Wire, answer: type[T]) -> T:
        assert server == SERVER
        self.asked.append((path, request))
        # The last answer is given again and again.
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        assert isinstance(given, answer)
        return given

    def run(self, settings: DaemonSettings) -> Connection:
        return enroll_by_approval(
            settings,
            SERVER,
            "bench",
            show=self.shown.append,
            clock=lambda: sum(self.slept),
            sleep=self.slept.append,
        )


@pytest.fixture
def settings(tmp_path: Path) -> DaemonSettings:
    return DaemonSettings(tmp_path / "config")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Play]:
    def begin(*answers: Wire | Exception) -> Play:
        scripted = Play(*answers)
        monkeypatch.setattr(enrollment, "post", scripted.post)
        return scripted

    return begin


def test_it_polls_until_it_is_approved(play: Callable[..., Play], settings: DaemonSettings) -> None:
    scripted = play(PENDING, PENDING, ENROLLED)
    connection = scripted.run(settings)
    assert (connection.daemon_id, connection.token) == ("machine_7", "omt_new")
    assert settings.load_connection() == connection
    assert scripted.shown == [ASKED]
    assert scripted.slept == [5, 5, 5]
    assert [path for path, _ in scripted.asked] == [f"{V1}/auth/device"] + [
        f"{V1}/auth/device/token"
    ] * 3
    assert scripted.asked[0][1].nickname == "bench"
    assert scripted.asked[1][1].device_code == "device"


@pytest.mark.parametrize(
    ("answers", "pauses"),
    [
        ([SLOWER, PENDING, SLOWER, PENDING], [5, 10, 10, 15, 15]),  # five more, permanently
        # RFC 8628, section 3.5: exponential backoff while the service is unavailable.
        ([UNAVAILABLE] * 4 + [PENDING], [5, 10, 20, 40, 60, 5]),
        ([RefusedError("Too many", ErrorCode.RATE_LIMITED, 17), PENDING], [5, 17, 5]),
    ],
)
def test_it_waits_as_the_service_says(
    play: Callable[..., Play],
    settings: DaemonSettings,
    answers: list[Exception],
    pauses: list[float],
) -> None:
    scripted = play(*answers, ENROLLED)
    scripted.run(settings)
    assert scripted.slept == pauses


@pytest.mark.parametrize("code", [ErrorCode.ACCESS_DENIED, ErrorCode.EXPIRED_TOKEN, None])
def test_a_refusal_ends_it(
    play: Callable[..., Play], settings: DaemonSettings, code: ErrorCode | None
) -> None:
    scripted = play(PENDING, RefusedError("The user has refused this machine", code, None))
    with pytest.raises(EnrollmentError, match="refused this machine"):
        scripted.run(settings)
    assert len(scripted.asked) == 3
    assert not settings.connection_file.exists()


@pytest.mark.parametrize("answer", [PENDING, SLOWER, UNAVAILABLE])
def test_polling_ends_when_the_code_expires(
    play: Callable[..., Play], settings: DaemonSettings, answer: Exception
) -> None:
    scripted = play(answer)
    with pytest.raises(EnrollmentError, match="in time: run setup again"):
        scripted.run(settings)
    assert 500 < sum(scripted.slept) <= 600


def test_what_a_terminal_would_act_on_is_not_shown(
    play: Callable[..., Play], settings: DaemonSettings
) -> None:
    scripted = play(ENROLLED)
    scripted.answers[0] = DeviceAuthorization(
        device_code="device",
        user_code="BCDF\x1b[2J",
        verification_uri="https://x/\x1b]0;y\x07",
        verification_uri_complete="\r\n",
        expires_in=600,
        interval=0,
    )
    scripted.run(settings)
    assert scripted.shown[0].user_code == "BCDF\ufffd[2J"
    assert scripted.shown[0].verification_uri == "https://x/\ufffd]0;y\ufffd"
    assert scripted.slept == [1], "never without a pause"


def test_setting_up_again_keeps_the_id(play: Callable[..., Play], settings: DaemonSettings) -> None:
    play(ENROLLED).run(settings)
    again = play(ENROLLED)
    again.run(settings)
    assert again.asked[0][1].daemon_id == "machine_7"


@pytest.mark.one_store
class TestCommand:
    """The command itself, against the service."""

    pytestmark = pytest.mark.asyncio(loop_scope="session")

    async def _start(self, owner: Owner, config: Path) -> tuple[asyncio.subprocess.Process, str]:
        """Start `outrider setup`; return it and the code that it shows."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "outrider",
            "setup",
            "--server",
            owner.site.url,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONUNBUFFERED": "1",
                "OUTRIDER_CONFIG_DIR": str(config),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        text = ""
        async with asyncio.timeout(PROCESS_TIMEOUT):
            while "Ctrl-C" not in text:
                line = (await process.stdout.readline()).decode()
                assert line, text
                text += line
        assert f"{owner.site.url}/device" in text
        match = re.search(r"[A-Z0-9]{4}-[A-Z0-9]{4}", text)
        assert match is not None, text
        return process, match[0]

    async def test_an_approved_machine_is_enrolled(self, user: Owner, tmp_path: Path) -> None:
        process, code = await self._start(user, tmp_path)
        page = await dashboard(user)
        body = {"userCode": code}
        assert (await page.post(f"{V1}/auth/device/approve", json=body)).status_code == 200
        async with asyncio.timeout(PROCESS_TIMEOUT):
            out, _ = await process.communicate()
        assert process.returncode == 0
        connection = DaemonSettings(tmp_path).load_connection()
        assert connection.daemon_id in out.decode()
        assert (tmp_path / "connection.json").stat().st_mode & 0o777 == 0o600

    async def test_ctrl_c_changes_nothing_on_this_machine(
        self, user: Owner, tmp_path: Path
    ) -> None:
        process, _ = await self._start(user, tmp_path)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PROCESS_TIMEOUT):
            _, errors = await process.communicate()
        assert process.returncode == 130
        assert "Cancelled" in errors.decode()
        assert "Traceback" not in errors.decode()
        assert not (tmp_path / "connection.json").exists()
