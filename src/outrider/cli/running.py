"""Shared by all commands: run an event loop, stop on signals, print errors as sentences."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn, TypeVar

import typer
import uvloop

from outrider.cli.printing import warn
from outrider.contract.errors import OutriderError

if TYPE_CHECKING:
    from outrider.machine.settings import DaemonSettings
    from outrider.service.settings import Settings

T = TypeVar("T")

YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask; needed without a terminal.")]

_FIRST_DESCRIPTOR: Final = 3
"""The first descriptor after standard input, output and error."""


class SettingError(OutriderError):
    """A setting of the service is invalid; the text names it."""


def service_settings() -> "Settings":
    """Return the settings of the service, or end the command with the invalid one."""
    try:
        return load_service_settings()
    except SettingError as error:
        fail(str(error))


def load_service_settings() -> "Settings":
    """Return the settings of the service.

    Raises:
        SettingError: one of them is invalid.
    """
    from pydantic import ValidationError

    from outrider.service.settings import Settings

    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(["OUTRIDER", *(str(part).upper() for part in first["loc"][:1])])
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingError(f"The setting {name} is wrong: {reason}") from error


def daemon_settings() -> "DaemonSettings":
    """Return the settings of the machine agent, or end the command with the invalid one."""
    from outrider.machine.settings import DaemonSettings

    try:
        return DaemonSettings.from_environment()
    except OutriderError as error:
        fail(str(error))


def fail(message: str, status: int = 1) -> NoReturn:
    """End the command with a sentence on standard error."""
    warn(message)
    sys.exit(status)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is destroyed; end the command unless the answer is yes.

    Args:
        yes: the option `--yes`: do not ask. Without a terminal the command is refused instead.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        fail(f"{question} There is no terminal to ask on: confirm it with --yes", 2)
    typer.confirm(question, abort=True, err=True)


def run(main: Coroutine[None, None, T]) -> T:
    """Run `main`; an `OutriderError` is printed as a sentence and ends with exit code 1.

    Children inherit no descriptors except standard input, output and error.
    """
    close_descriptors_on_exec()
    try:
        return uvloop.run(main)
    except OutriderError as error:
        fail(str(error))


def close_descriptors_on_exec() -> None:
    """Set close-on-exec on every open descriptor except standard input, output and error.

    Python sets it on descriptors that it opens, but not on those that this process inherited: the
    listening sockets of a worker, or what a shell or `make` left open. uvloop does not close
    them in its children, whatever `close_fds` says, so an agent in tmux would hold a port or a
    lock for days.
    """
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        if number >= _FIRST_DESCRIPTOR:
            with suppress(OSError):  # the descriptor of the listing itself is closed by now
                os.set_inheritable(number, False)


def on_hangup(work: Callable[[], None]) -> None:
    """Call `work` at each SIGHUP, which otherwise ends the process."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, work)


def run_until_stopped(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `main` with an event that SIGINT and SIGTERM set; a second signal ends it at once."""

    async def with_signals() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def on_signal(number: signal.Signals) -> None:
            # The second signal has its usual effect, also where the first one's work hangs.
            if stop.is_set():
                loop.remove_signal_handler(number)
                signal.raise_signal(number)
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        await main(stop)

    try:
        run(with_signals())
    except KeyboardInterrupt:
        sys.exit(130)
