"""What a check has found, and the threads that checks run in."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """It may become a problem, or is one for some uses only."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be checked, because another check failed."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the result.

    Attributes:
        name: of the check, stable, for programs.
        advice: what to do, one sentence; None if all is well.
    """

    name: str
    status: Status
    message: str
    advice: str | None = None


def ok(name: str, message: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(name, Status.OK, message)


def warning(name: str, message: str, advice: str) -> Finding:
    """Return a finding that may become a problem."""
    return Finding(name, Status.WARNING, message, advice)


def failed(name: str, message: str, advice: str) -> Finding:
    """Return a finding that has to be corrected."""
    return Finding(name, Status.FAILED, message, advice)


def skipped(name: str, cause: str) -> Finding:
    """Return a finding of a check that was not possible, because another one failed."""
    return Finding(name, Status.SKIPPED, "not checked", f"Correct `{cause}` first.")


def in_background(work: Callable[[], T]) -> Future[T]:
    """Run `work` in a daemon thread: one that hangs in a system call ends with the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again by `future.result`
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
