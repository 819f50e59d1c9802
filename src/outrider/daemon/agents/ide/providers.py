"""The providers of IDEs, from their files: start one, adopt one, find one again."""

import asyncio
import json
import os
import secrets
import shutil
import socket
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from outrider.contract.errors import ApiError, bad_request
from outrider.contract.resources import Provider as Description
from outrider.daemon.agents.adapter import Adapter
from outrider.daemon.agents.ide.adapter import IdeAdapter
from outrider.daemon.agents.ide.driver import Driver, is_installed
from outrider.daemon.agents.ide.provider_file import Browser, IdeFile
from outrider.daemon.agents.ide.running import Running, last_lines
from outrider.daemon.agents.ide.window import Window, WindowError
from outrider.daemon.agents.provider import CDP
from outrider.daemon.agents.session import Clock
from outrider.daemon.journal import Journal, SessionRecord

_ENDPOINT: Final = "endpoint"
_PROGRAMS: Final = "programs"
_POLL: Final = 0.1
_ANSWERS_WITHIN: Final = 1.0

OPEN_AGAIN: Final = 1.5
"""Seconds between two attempts to open the chat of an IDE that starts."""

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


class IdeProvider:
    """One kind of IDE.

    Args:
        folder: where each session keeps its chats, its browser's profile and its logs.
        environment: what the IDE inherits, before the file's changes.
    """

    def __init__(
        self,
        file: IdeFile,
        script: str,
        folder: Path,
        environment: Mapping[str, str],
        *,
        journal: Journal,
        clock: Clock,
        driver: Driver,
    ) -> None:
        self.file = file
        self._script = script
        self._folder = folder
        self._given = environment
        self._journal = journal
        self._clock = clock
        self._driver = driver
        self._adopted: set[str] = set()

    def describe(self) -> Description:
        """Return what the API tells of it. Looks for its program on the agent's PATH."""
        path = self._find(self.file.command[0])
        return Description(
            type=self.file.type,
            category=self.file.category,
            display_name=self.file.display_name,
            installed=path is not None,
            path=path,
            verified=self.file.verified,
        )

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the IDE, or adopt one that listens; return once its chat can be used."""
        cdp = record.native.get(CDP) != "off"
        if cdp and not is_installed():
            raise bad_request(
                "IDEs are driven by Playwright, which is not installed on this machine: "
                "`pip install 'outrider[ide]'` there, then start its agent again",
                "type",
            )
        deadline = time.monotonic() + self.file.ready_timeout
        if cdp and (endpoint := await self._adoptable(record)) is not None:
            record.native[_ENDPOINT] = endpoint
            return await self._follow(record, [], endpoint, None, deadline)
        programs: list[Running] = []
        try:
            endpoint, url = await self._start(record, programs, cdp=cdp, deadline=deadline)
            return await self._follow(record, programs, endpoint, url, deadline)
        except BaseException:
            await asyncio.shield(self._abandon(record, programs))
            raise

    async def restore(self, record: SessionRecord) -> Adapter:
        """Find the IDE's window again; it is connected to in the background."""
        programs = [Running.parse(text) for text in record.native.get(_PROGRAMS, "").split()]
        endpoint = record.native.get(_ENDPOINT)
        adapter = self._adapter(record, programs, endpoint)
        name = self.file.display_name
        if not all(program.runs for program in programs):
            adapter.lost(f"{name} has ended")
        elif endpoint is None and record.native.get(CDP) != "off":
            adapter.lost(f"The machine agent stopped while {name} was being launched")
        elif endpoint is not None and not is_installed():
            adapter.lost("Playwright is not installed any more: `pip install 'outrider[ide]'`")
        else:
            adapter.attach(None if endpoint is None else self._window(adapter, endpoint))
        return adapter

    # Starting

    async def _start(
        self, record: SessionRecord, programs: list[Running], *, cdp: bool, deadline: float
    ) -> tuple[str | None, str | None]:
        """Start the programs; return the debugging port's address and the page's."""
        file, state = self.file, self._state(record)
        shown = None if file.browser is None else self._browser(file.browser)
        await asyncio.to_thread(state.mkdir, mode=0o700, parents=True, exist_ok=True)
        values = {
            "dir": record.path,
            "state": str(state),
            "port": str(_free_port()),
            "debug_port": str(_free_port()),
            "token": secrets.token_urlsafe(24),
        }
        environment = self._environment(values)
        words = [*file.args, *(file.debug_args if cdp else [])]
        command = self._find(file.command[0]) or file.command[0]
        argv = [command, *(word.format(**values) for word in [*file.command[1:], *words])]
        await self._run(record, programs, argv, environment, "ide.log")
        if file.browser is None or shown is None:
            endpoint = f"http://127.0.0.1:{values['debug_port']}"
            return (endpoint, None) if cdp else (None, None)
        url = file.browser.url.format(**values | {"dir": quote(record.path)})
        await self._until(lambda: _answers(url), record, programs[0], deadline)
        argv = [shown, *_BROWSER_FLAGS, f"--user-data-dir={state / 'browser'}"]
        if not ({"DISPLAY", "WAYLAND_DISPLAY"} & environment.keys()):
            argv += ["--headless=new", "--disable-gpu"]
        if os.geteuid() == 0:
            argv.append("--no-sandbox")
        if not cdp:
            page = await asyncio.to_thread(_write_redirect, state / "open.html", url)
            await self._run(record, programs, [*argv, page.as_uri()], environment, "browser.log")
            return None, None
        argv += [f"--remote-debugging-port={values['debug_port']}", "about:blank"]
        await self._run(record, programs, argv, environment, "browser.log")
        return f"http://127.0.0.1:{values['debug_port']}", url

    async def _run(
        self,
        record: SessionRecord,
        programs: list[Running],
        argv: list[str],
        environment: Mapping[str, str],
        log: str,
    ) -> None:
        starting = asyncio.ensure_future(
            Running.start(argv, record.path, environment, self._state(record) / log)
        )
        try:
            program = await asyncio.shield(starting)
        except OSError as error:
            raise ApiError(
                500, f"{self.file.display_name} could not be started: {error.strerror}"
            ) from error
        except asyncio.CancelledError:
            programs.append(await starting)
            raise
        programs.insert(0, program)
        record.native[_PROGRAMS] = " ".join(map(str, programs))
        self._journal.save_session(record)  # a daemon killed from here on can still end it

    async def _follow(
        self,
        record: SessionRecord,
        programs: list[Running],
        endpoint: str | None,
        url: str | None,
        deadline: float,
    ) -> Adapter:
        """Return the adapter once the chat is there."""
        if endpoint is None:
            adapter = self._adapter(record, programs, None)
            adapter.attach(None)
            return adapter
        if programs:
            await self._until(
                lambda: _answers(f"{endpoint}/json/version"), record, programs[0], deadline
            )
        record.native[_ENDPOINT] = endpoint
        adapter = self._adapter(record, programs, endpoint)
        window = self._window(adapter, endpoint)
        adapter.attach(window, url)
        try:
            await self._until_ready(record, adapter, window, deadline)
        except BaseException:
            await asyncio.shield(adapter.detach())
            self._adopted.discard(endpoint)
            raise
        return adapter

    async def _until_ready(
        self, record: SessionRecord, adapter: IdeAdapter, window: Window, deadline: float
    ) -> None:
        """Open the chat and return once it is there."""
        opened = 0.0
        while not adapter.begin():
            if time.monotonic() > deadline:
                raise ApiError(
                    500,
                    f"The chat of {self.file.display_name} was not there within "
                    f"{self.file.ready_timeout:.0f} s ({window.trouble or window.state})",
                )
            if adapter.observed.gone:
                raise ApiError(500, self._ended(record))
            if window.state == "there" and time.monotonic() > opened + OPEN_AGAIN:
                opened = time.monotonic()
                await _open(window, adapter.selected)
            await asyncio.sleep(_POLL)
        adapter.look()

    async def _until(
        self,
        check: Callable[[], bool],
        record: SessionRecord,
        program: Running,
        deadline: float,
    ) -> None:
        while not await asyncio.to_thread(check):
            if time.monotonic() > deadline:
                log = last_lines(self._state(record) / "ide.log")
                raise ApiError(
                    500,
                    f"{self.file.display_name} did not answer within "
                    f"{self.file.ready_timeout:.0f} s (if it runs already without a debugging "
                    f"port, close it first); it says: {log}",
                )
            if self.file.browser is not None and not program.runs:
                raise ApiError(500, self._ended(record))
            await asyncio.sleep(_POLL)

    async def _abandon(self, record: SessionRecord, programs: list[Running]) -> None:
        await asyncio.gather(*(program.end() for program in programs))
        await asyncio.to_thread(shutil.rmtree, self._state(record), ignore_errors=True)

    def _ended(self, record: SessionRecord) -> str:
        state = self._state(record)
        said = [last_lines(log) for log in sorted(state.glob("*.log"))]
        return f"{self.file.display_name} ended while it was started; it says: " + "\n".join(said)

    # Adopting

    async def _adoptable(self, record: SessionRecord) -> str | None:
        """Return the address of an IDE that a person has opened with a debugging port, here."""
        port = self.file.adopt_port
        endpoint = f"http://127.0.0.1:{port}"
        if port is None or endpoint in self._adopted:
            return None
        pages = await asyncio.to_thread(_fetch, f"{endpoint}/json/list")
        pattern = self.file.pages
        if not isinstance(pages, list) or not any(_is_page(page, pattern) for page in pages):
            return None
        window = Window(endpoint, self.file, self._script, self._driver, lambda: None)
        window.start()
        try:
            opened = await _workspace(window)
        finally:
            await window.stop()
        if opened is not None and Path(opened) != Path(record.path):
            if Path(record.path) != Path.home():
                return None
            record.path = opened  # nobody asked for another directory
        return endpoint

    # Parts

    def _adapter(
        self, record: SessionRecord, programs: list[Running], endpoint: str | None
    ) -> IdeAdapter:
        state = self._state(record)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if endpoint is not None:
            self._adopted.add(endpoint)

        def forget() -> None:
            self._adopted.discard(endpoint or "")
            shutil.rmtree(state, ignore_errors=True)

        return IdeAdapter(
            self.file,
            record,
            self._journal,
            state,
            self._clock,
            programs=programs,
            forget=forget,
        )

    def _window(self, adapter: IdeAdapter, endpoint: str) -> Window:
        return Window(endpoint, self.file, self._script, self._driver, adapter.look)

    def _state(self, record: SessionRecord) -> Path:
        return self._folder / record.id

    def _find(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment({}).get("PATH"))

    def _browser(self, browser: Browser) -> str:
        found = next(filter(None, map(self._find, browser.command)), None)
        if found is None:
            raise bad_request(
                f"{self.file.display_name} is shown in a browser, and none of "
                f"{', '.join(browser.command)} is on the daemon's PATH: {browser.install}",
                "type",
            )
        return found

    def _environment(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the IDE's environment: the daemon's, with what the provider file changes."""
        environment = self.file.environment_from(self._given, ("OUTRIDER_",))
        for name, value in self.file.environment.set.items():
            environment[name] = value.format(**values) if values else value
        return environment


def forget_others(folder: Path, session_ids: Iterable[str]) -> None:
    """Delete what sessions that are no more have left: a daemon may be killed before it does."""
    kept = set(session_ids)
    for path in folder.glob("session_*"):
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


async def _open(window: Window, agent: str) -> None:
    try:
        await window.ask("open", agent)
    except WindowError:
        return  # the page is being loaded: it is asked again


async def _workspace(window: Window) -> str | None:
    deadline = time.monotonic() + 10
    while window.state != "there":
        if time.monotonic() > deadline:
            return None
        await asyncio.sleep(_POLL)
    try:
        found = await window.ask("workspace")
    except WindowError:
        return None
    return _expanded(found) if isinstance(found, str) and found else None


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


def _is_page(page: Any, pattern: str) -> bool:
    import re

    return (
        isinstance(page, dict)
        and page.get("type") == "page"
        and re.search(pattern, str(page.get("url"))) is not None
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks this machine itself, whatever proxy is set."""


def _answers(url: str) -> bool:
    try:
        with _direct.open(url, timeout=_ANSWERS_WITHIN) as answer:
            return bool(answer.status < 400)
    except OSError:
        return False


def _fetch(url: str) -> Any:
    try:
        with _direct.open(url, timeout=_ANSWERS_WITHIN) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def _write_redirect(path: Path, url: str) -> Path:
    """Write a page that leads to `url`, which holds a secret: not for a command line."""
    path.touch(mode=0o600)
    path.write_text(f'<meta http-equiv="refresh" content="0; url={url}">', encoding="utf-8")
    return path
