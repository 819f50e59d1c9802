"""How a command ends: a session with the service, errors with their exit codes, questions."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Final, NoReturn

import typer

from outrider.cli.client.credentials import NotLoggedIn, connect
from outrider.cli.printing import print_json, warn
from outrider.contract.errors import OutriderError
from outrider.sdk import (
    ApiError,
    ApprovalRequired,
    AskTimeout,
    CommandTimeout,
    ConnectionFailed,
    MachineOffline,
    Outrider,
    ResponseTimeout,
)
from outrider.sdk.errors import MissingApiKey

PASSWORD_VARIABLE: Final = "OUTRIDER_PASSWORD"  # noqa: S105  # a name


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4


class UsageError(OutriderError):
    """The command line does not say clearly what to do, such as an ambiguous target."""


def exit_code_of(error: OutriderError) -> ExitCode:
    """Return the exit code for an error."""
    if isinstance(error, AskTimeout | CommandTimeout | ResponseTimeout):
        return ExitCode.TIMEOUT
    if isinstance(error, ConnectionFailed | MachineOffline):
        return ExitCode.UNREACHABLE
    if isinstance(error, UsageError | NotLoggedIn | MissingApiKey):
        return ExitCode.USAGE
    return ExitCode.REFUSED


def error_body(error: OutriderError) -> dict[str, Any]:
    """Return an error as the API's error body."""
    body: dict[str, Any] = {"error": str(error)}
    if isinstance(error, ApiError):
        if error.code is not None:
            body["code"] = error.code
        if error.details:
            body["details"] = error.details
    if isinstance(error, ApprovalRequired):
        body |= {"code": "APPROVAL_PENDING", "pendingAction": error.action}
    return body


def fail(error: OutriderError, *, as_json: bool) -> NoReturn:
    """End the command with an error: JSON on standard output, or a sentence on standard error."""
    if as_json:
        print_json(error_body(error))
    else:
        warn(str(error))
    sys.exit(exit_code_of(error))


@contextmanager
def session(*, as_json: bool, login: tuple[str, str] | None = None) -> Iterator[Outrider]:
    """Provide a client; an error ends the command with a sentence and its exit code.

    Args:
        login: email and password, for what an API key may not do.
    """
    try:
        with connect(login) as client:
            yield client
    except OutriderError as error:
        fail(error, as_json=as_json)
    except BrokenPipeError:
        # Python would complain about the pipe once more when it flushes at the end.
        sys.stderr.close()  # whoever read the output has enough, as `head` does
        sys.exit(ExitCode.DONE)
    except KeyboardInterrupt:
        sys.exit(130)


@contextmanager
def user_session(email: str | None, *, as_json: bool) -> Iterator[Outrider]:
    """Provide a client that a user has logged in, for what an API key may not do.

    On a terminal, an email and a password that are missing are asked for.
    """
    password = os.environ.get(PASSWORD_VARIABLE)
    if sys.stdin.isatty():
        email = email or typer.prompt("Email", err=True)
        password = password or typer.prompt("Password", hide_input=True, err=True)
    if not (email and password):
        text = f"An API key may not do this: give --email, and {PASSWORD_VARIABLE}"
        fail(UsageError(text), as_json=as_json)
    with session(as_json=as_json, login=(email, password)) as client:
        yield client


def confirm(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask before something is destroyed; without a terminal, only `--yes` goes on."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail(UsageError(f"{question} Give --yes to do it without a terminal"), as_json=as_json)
    typer.confirm(question, abort=True, err=True)
