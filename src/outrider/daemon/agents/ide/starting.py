"""Starts an IDE's programs: the IDE, and a browser where it is shown in one."""

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
from outrider.daemon.agents.ide.loopback import answers, free_port
from outrider.daemon.agents.ide.provider_file import Browser, IdeFile
from outrider.daemon.agents.ide.running import Running, last_lines
from outrider.daemon.agents.ide.state import IdeState
from outrider.daemon.agents.provider import fill_placeholders
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

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
    # a window that nobody looks at must tell of changes as fast as any
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)


class Starting:
    """One launch of an IDE.

    Args:
        state: the session's folder: logs, and the browser's profile.
        inherited: the environment that programs inherit, before the file's changes.
        deadline: when (`time.monotonic`) everything has to be there.
    """

    def __init__(
        self,
        file: IdeFile,
        record: SessionRecord,
        state: Path,
        inherited: Mapping[str, str],
        *,
        journal: Journal,
        deadline: float,
    ) -> None:
        self.programs: list[Running] = []
        self._file = file
        self._record = record
        self._state = state
        self._inherited = inherited
        self._journal = journal
        self._deadline = deadline

    async def start(self, *, cdp: bool) -> tuple[str | None, str | None]:
        """Start the programs; return the debugging port's address and the page's, if any.

        Raises:
            ApiError: 400, there is no browser; 500, a program does not start or answer.
        """
        file, state = self._file, self._state
        shown = None if file.browser is None else self._browser(file.browser)
        await asyncio.to_thread(state.mkdir, mode=0o700, parents=True, exist_ok=True)
        values = {
            "dir": self._record.path,
            "state": str(state),
            "port": str(free_port()),
            "debug_port": str(free_port()),
            "token": secrets.token_urlsafe(24),
        }
        environment = environment_of(file, self._inherited, values)
        words = [*file.command[1:], *file.args, *(file.debug_args if cdp else [])]
        program = find(file, self._inherited, file.command[0]) or file.command[0]
        argv = [program, *(fill_placeholders(word, values) for word in words)]
        await self._run(argv, environment, "ide.log")
        endpoint = f"http://127.0.0.1:{values['debug_port']}" if cdp else None
        url = None
        if file.browser is not None and shown is not None:
            url = fill_placeholders(file.browser.url, values | {"dir": quote(self._record.path)})
            await self._show(url, shown, environment, values["debug_port"] if cdp else None)
        if endpoint is not None:
            await self._until(lambda: answers(f"{endpoint}/json/version"))
        return endpoint, url if cdp else None

    async def abandon(self) -> None:
        """End what was started, and leave nothing of it."""
        await asyncio.gather(*(program.end() for program in self.programs))
        await asyncio.to_thread(forget, self._record.id, self._state)

    def ended(self) -> ApiError:
        """Return the error of an IDE that ended while it was started."""
        said = [last_lines(log) for log in sorted(self._state.glob("*.log"))]
        return ApiError(
            500,
            f"{self._file.display_name} ended while it was started; its output ends with:\n"
            + "\n".join(said),
        )

    async def _show(
        self, url: str, browser: str, environment: Mapping[str, str], debug_port: str | None
    ) -> None:
        """Start a browser, on an empty page where it can be told later where to go."""
        await self._until(lambda: answers(url))
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
        own = scratch(self._record.id)
        await asyncio.to_thread(own.mkdir, mode=0o700)
        await self._run(argv, {**environment, "TMPDIR": str(own)}, "browser.log")

    async def _run(self, argv: list[str], environment: Mapping[str, str], log: str) -> None:
        starting = asyncio.ensure_future(
            Running.start(argv, self._record.path, environment, self._state / log)
        )
        try:
            program = await asyncio.shield(starting)
        except OSError as error:
            raise ApiError(
                500, f"{self._file.display_name} could not be started: {error.strerror}"
            ) from error
        except asyncio.CancelledError:
            self.programs.append(await starting)
            raise
        self.programs.insert(0, program)
        IdeState(self._record).programs = self.programs
        self._journal.save_session(self._record)  # a daemon killed from here on can still end it

    async def _until(self, check: Callable[[], bool]) -> None:
        while not await asyncio.to_thread(check):
            if time.monotonic() > self._deadline:
                raise ApiError(
                    500,
                    f"{self._file.display_name} did not answer within "
                    f"{self._file.ready_timeout:.0f} s (if it runs already without a debugging "
                    f"port, close it first); its output ends with:\n"
                    f"{last_lines(self._state / 'ide.log')}",
                )
            if self._file.browser is not None and not self.programs[0].runs:
                raise self.ended()
            await asyncio.sleep(_POLL)

    def _browser(self, browser: Browser) -> str:
        found = (find(self._file, self._inherited, name) for name in browser.command)
        first = next(filter(None, found), None)
        if first is None:
            raise bad_request(
                f"{self._file.display_name} is shown in a browser, and none of "
                f"{', '.join(browser.command)} is on the daemon's PATH: {browser.install}",
                "type",
            )
        return first


def environment_of(
    file: IdeFile, inherited: Mapping[str, str], values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the IDE's environment: the daemon's, with what the provider file changes."""
    environment = file.environment_from(inherited, ("OUTRIDER_",))
    for name, value in file.environment.set.items():
        environment[name] = fill_placeholders(value, values or {})
    return environment


def find(file: IdeFile, inherited: Mapping[str, str], program: str) -> str | None:
    """Return where a program is on the IDE's PATH."""
    return shutil.which(program, path=environment_of(file, inherited).get("PATH"))


def scratch(session_id: str) -> Path:
    """Return where the session's browser has its temporary files.

    Not in the session's folder: the browser keeps a socket there, whose whole path may have
    107 characters.
    """
    return Path(tempfile.gettempdir()) / f"outrider-{session_id[-16:]}"


def forget(session_id: str, state: Path) -> None:
    """Delete what a session has left on the disk."""
    shutil.rmtree(state, ignore_errors=True)
    shutil.rmtree(scratch(session_id), ignore_errors=True)


def _write_redirect(path: Path, url: str) -> Path:
    """Write a page that leads to `url`, which holds a secret: not for a command line."""
    path.touch(mode=0o600)
    path.write_text(f'<meta http-equiv="refresh" content="0; url={url}">', encoding="utf-8")
    return path
