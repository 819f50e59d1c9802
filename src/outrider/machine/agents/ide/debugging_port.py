"""The debugging ports of IDEs: Playwright's connections to them, and their HTTP side."""

import asyncio
import contextlib
import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import structlog

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

CLOSE_TIMEOUT: Final = 1.5
"""Seconds to close a connection, and then to stop Playwright's driver."""

CONNECT_TIMEOUT: Final = 10.0
"""Seconds that a debugging port has to answer."""

_HTTP_TIMEOUT: Final = 1.0
_START_TIMEOUT: Final = 10.0

_log = structlog.get_logger(__name__)

_opener: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_installed() -> bool:
    """Return whether Playwright is installed: it comes with the extra `ide`."""
    try:
        import playwright.async_api  # noqa: F401
    except ImportError:
        return False
    return True


class DebuggingPorts:
    """Connects to debugging ports through one Playwright process for all IDEs.

    The process is started with the first connection and stopped with the last one.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._users = 0
        self._playwright: Playwright | None = None

    @asynccontextmanager
    async def connection(self, endpoint: str) -> AsyncIterator["Browser"]:
        """Connect to the debugging port at `endpoint`, an http address.

        Raises:
            playwright.async_api.Error: nothing answers there.
        """
        playwright = await self._acquire()
        try:
            # no_defaults: an IDE that a person uses keeps its colours, focus and downloads
            browser = await playwright.chromium.connect_over_cdp(
                endpoint, timeout=CONNECT_TIMEOUT * 1000, no_defaults=True, is_local=True
            )
            try:
                yield browser
            finally:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT):
                        await browser.close()  # closes the connection only
        finally:
            await asyncio.shield(self._release())

    async def _acquire(self) -> "Playwright":
        async with self._lock:
            if self._playwright is None:
                self._playwright = await _start()
            self._users += 1
            return self._playwright

    async def _release(self) -> None:
        async with self._lock:
            self._users -= 1
            if self._users == 0 and self._playwright is not None:
                playwright, self._playwright = self._playwright, None
                await _stop(playwright)


async def _start() -> "Playwright":
    """Start Playwright with its driver; if cancelled, stop it first."""
    from playwright.async_api import async_playwright

    # Cancelled half-way, it would leave the driver running, which then also keeps uvloop from
    # closing. So its start is completed before it is stopped.
    starting = asyncio.create_task(async_playwright().start(), name="start playwright")
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.shield(_stop_started(starting))  # also if it is cancelled once more
        raise


async def _stop_started(starting: "asyncio.Task[Playwright]") -> None:
    await asyncio.wait({starting}, timeout=_START_TIMEOUT)
    if starting.done() and starting.exception() is None:
        await _stop(starting.result())
    else:
        starting.cancel()
        _kill_driver()


async def _stop(playwright: "Playwright") -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT):
            await playwright.stop()
    except TimeoutError:
        _log.warning("playwright driver did not stop: killed")
        _kill_driver()


def _kill_driver() -> None:
    """Kill Playwright's driver, a child of this process."""
    import playwright

    folder = str(Path(playwright.__file__).parent)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(argument.startswith(folder) for argument in child.cmdline()):
                child.kill()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Return whether `url` answers within a second; proxies are not used."""
    try:
        with _opener.open(url, timeout=_HTTP_TIMEOUT) as answer:
            return bool(answer.status < 400)
    except OSError:
        return False


def fetch(url: str) -> Any:
    """Return the JSON at `url`, None if there is none within a second; proxies are not used."""
    try:
        with _opener.open(url, timeout=_HTTP_TIMEOUT) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None
