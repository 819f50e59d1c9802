"""Start an IDE's programs: the IDE itself, and a browser for an IDE that is a web page."""

import asyncio
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from outrider.contract.errors import ApiError, bad_request
from outrider.machine.agents.ide.adapter_state import IdeState
from outrider.machine.agents.ide.debugging_port import answers, free_port
from outrider.machine.agents.ide.program import Program, output_of
from outrider.machine.agents.ide.spec import Browser, IdeSpec
from outrider.machine.agents.provider_spec import fill_placeholders
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.record import SessionRecord

_POLL: Final = 0.1

_BROWSER_FLAGS: Final = (
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--password-store=basic",
    "--window-size=1400,900",
    # a window in the background must report changes as fast as any other
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)


class Launch:
    """One launch of an IDE.

    Args:
        state: the session's folder: logs, and the browser's profile.
        environment: the environment of the programs, whose values may have placeholders.
        deadline: the time (`time.monotonic`) by which everything must answer.
    """

    def __init__(
        self,
        spec: IdeSpec,
        record: SessionRecord,
        state: Path,
        environment: Mapping[str, str],
        *,
        journal: Journal,
        deadline: float,
    ) -> None:
        self.programs: list[Program] = []
        self._spec = spec
        self._record = record
        self._state = state
        self._environment = environment
        self._journal = journal
        self._deadline = deadline

    async def start(self, *, cdp: bool) -> tuple[str | None, str | None]:
        """Start the programs; return the addresses of the debugging port and the page, if any.

        Raises:
            ApiError: 400, there is no browser; 500, a program does not start or answer.
        """
        spec, state = self._spec, self._state
        shown = None if spec.browser is None else self._browser(spec.browser)
        await asyncio.to_thread(state.mkdir, mode=0o700, parents=True, exist_ok=True)
        values = {
            "dir": self._record.path,
            "state": str(state),
            "port": str(free_port()),
            "debug_port": str(free_port()),
            "token": secrets.token_urlsafe(24),
        }
        changed = {
            name: fill_placeholders(value, values) for name, value in spec.environment.set.items()
        }
        environment = {**self._environment, **changed}
        args = [*spec.args, *(spec.debug_args if cdp else [])]
        program, *words = spec.words(args, None, values)
        await self._run([self._find(program) or program, *words], environment, "ide.log")
        endpoint = f"http://127.0.0.1:{values['debug_port']}" if cdp else None
        url = None
        if spec.browser is not None and shown is not None:
            url = fill_placeholders(spec.browser.url, values | {"dir": quote(self._record.path)})
            await self._show(url, shown, environment, values["debug_port"] if cdp else None)
        if endpoint is not None:
            await self._wait_until(lambda: answers(f"{endpoint}/json/version"))
        return endpoint, url if cdp else None

    async def abandon(self) -> None:
        """End the programs that were started, and delete their files."""
        await asyncio.gather(*(program.end() for program in self.programs))
        await asyncio.to_thread(delete_files, self._record.id, self._state)

    def ended_error(self) -> ApiError:
        """Return the error for an IDE that ended while it was started."""
        output = [output_of(log) for log in sorted(self._state.glob("*.log"))]
        return ApiError(
            500,
            f"{self._spec.display_name} ended while it was started; its output ends with:\n"
            + "\n".join(output),
        )

    async def _show(
        self, url: str, browser: str, environment: Mapping[str, str], debug_port: str | None
    ) -> None:
        """Start a browser; with a debugging port, on an empty page that is navigated later."""
        await self._wait_until(lambda: answers(url))
        argv = [browser, *_BROWSER_FLAGS, f"--user-data-dir={self._state / 'browser'}"]
        if not ({"DISPLAY", "WAYLAND_DISPLAY"} & environment.keys()):
            argv += ["--headless=new", "--disable-gpu"]
        if os.geteuid() == 0:
            argv.append("--no-sandbox")
        if debug_port is None:
            page = await asyncio.to_thread(_write_redirect, self._state / "open.html", url)
            argv.append(page.as_uri())
        else:
            argv += [f"--remote-debugging-port={debug_port}", "about:blank"]
        own = temporary_directory(self._record.id)
        await asyncio.to_thread(own.mkdir, mode=0o700)
        await self._run(argv, {**environment, "TMPDIR": str(own)}, "browser.log")

    async def _run(self, argv: list[str], environment: Mapping[str, str], log: str) -> None:
        # Shielded: a cancelled launch must know the program that it has started, to end it.
        start = asyncio.ensure_future(
            Program.start(argv, self._record.path, environment, self._state / log)
        )
        try:
            program = await asyncio.shield(start)
        except OSError as error:
            raise ApiError(
                500, f"{self._spec.display_name} could not be started: {error.strerror}"
            ) from error
        except asyncio.CancelledError:
            self.programs.append(await start)
            raise
        self.programs.insert(0, program)
        IdeState(self._record).programs = self.programs
        # Saved at once: a daemon that restarts after a kill knows the program and can end it.
        self._journal.save_session(self._record)

    async def _wait_until(self, check: Callable[[], bool]) -> None:
        while not await asyncio.to_thread(check):
            if time.monotonic() > self._deadline:
                raise ApiError(
                    500,
                    f"{self._spec.display_name} did not answer within "
                    f"{self._spec.ready_timeout:.0f} s (if it runs already without a debugging "
                    f"port, close it first); its output ends with:\n"
                    f"{output_of(self._state / 'ide.log')}",
                )
            if self._spec.browser is not None and not self.programs[0].is_running:
                raise self.ended_error()
            await asyncio.sleep(_POLL)

    def _browser(self, browser: Browser) -> str:
        first = next(filter(None, map(self._find, browser.command)), None)
        if first is None:
            raise bad_request(
                f"{self._spec.display_name} is shown in a browser, and none of "
                f"{', '.join(browser.command)} is on the daemon's PATH: {browser.install}",
                "type",
            )
        return first

    def _find(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment.get("PATH"))


def temporary_directory(session_id: str) -> Path:
    """Return the directory of temporary files of the session's browser.

    It is outside the session's folder because the browser keeps a socket in it, whose path
    must not exceed 107 characters.
    """
    return Path(tempfile.gettempdir()) / f"outrider-{session_id[-16:]}"


def delete_files(session_id: str, state: Path) -> None:
    """Delete the files of a session."""
    shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(temporary_directory(session_id), ignore_errors=True)


def _write_redirect(path: Path, url: str) -> Path:
    """Write a page that redirects to `url`, whose secret must not be on a command line."""
    path.touch(mode=0o600)
    path.write_text(f'<meta http-equiv="refresh" content="0; url={url}">', encoding="utf-8")
    return path
