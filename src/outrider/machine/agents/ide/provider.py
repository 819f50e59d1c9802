"""Launch an IDE, adopt one that a person has started, and restore one after a restart."""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from outrider.contract.errors import ApiError, bad_request
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.ide.adapter_state import IdeState
from outrider.machine.agents.ide.agent import IdeAdapter
from outrider.machine.agents.ide.debugging_port import fetch, is_installed
from outrider.machine.agents.ide.launch import Launch, delete_files
from outrider.machine.agents.ide.program import Program
from outrider.machine.agents.ide.spec import IdeSpec
from outrider.machine.agents.ide.window import Window, WindowError
from outrider.machine.agents.patterns import pattern
from outrider.machine.agents.provider import Provider, ProviderContext
from outrider.machine.sessions.record import SessionRecord

_POLL: Final = 0.1

OPEN_RETRY_INTERVAL: Final = 1.5
"""Seconds between two attempts to open the chat of an IDE that starts."""

_OPEN_TIMEOUT: Final = 10.0


class IdeProvider(Provider):
    """One kind of IDE; `script` is the provider's JavaScript, an object."""

    spec: IdeSpec

    def __init__(self, spec: IdeSpec, script: str, context: ProviderContext) -> None:
        super().__init__(spec, context)
        self._script = script
        self._endpoints = context.endpoints

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the IDE, or adopt one that a person started; return once its chat is usable."""
        cdp = IdeState(record).cdp
        self._check(cdp, record.model)
        deadline = time.monotonic() + self.spec.ready_timeout
        launch = Launch(
            self.spec,
            record,
            self._folder(record),
            self._environment_of(record),
            journal=self._journal,
            deadline=deadline,
        )
        adopted = await self._adopt(record) if cdp else None
        try:
            if adopted is not None:
                return await self._follow(record, launch, adopted, None, deadline)
            endpoint, url = await launch.start(cdp=cdp)
            if endpoint is not None:
                return await self._follow(record, launch, endpoint, url, deadline)
        except BaseException:
            self._endpoints.discard(IdeState(record).endpoint or "")
            await asyncio.shield(launch.abandon())
            raise
        adapter = self._adapter(record, launch.programs, None)
        adapter.attach(None)
        return adapter

    def not_resumable(self, record: SessionRecord) -> str | None:  # noqa: ARG002
        """Return why no session of an IDE is continued: its chats are its own."""
        return (
            f"{self.spec.display_name} keeps its chats itself: launch it again and open one there"
        )

    async def restore(self, record: SessionRecord) -> Adapter:
        """Find the IDE again; its window is connected to in the background."""
        state = IdeState(record)
        programs, endpoint = state.programs, state.endpoint
        adapter = self._adapter(record, programs, endpoint)
        name = self.spec.display_name
        if not all(program.is_running for program in programs):
            adapter.set_ended(f"{name} has ended")
        elif endpoint is None and state.cdp:
            adapter.set_ended(f"The machine agent stopped while {name} was being launched")
        elif endpoint is not None and not is_installed():
            adapter.set_ended("Playwright is not installed any more: `pip install playwright`")
        else:
            adapter.attach(None if endpoint is None else self._window(adapter, endpoint))
        return adapter

    def _check(self, cdp: bool, model: str | None) -> None:
        if cdp and not is_installed():
            raise bad_request(
                "IDEs are driven by Playwright, which is not installed on this machine: "
                "`pip install playwright` there, then start its agent again",
                "type",
            )
        if model is not None and not cdp:
            raise bad_request(
                f"{self.spec.display_name} gets its model over its debugging port: "
                "launch it with enableCdp true, or without `model`",
                "model",
            )

    async def _adopt(self, record: SessionRecord) -> str | None:
        """Return the debugging port of an IDE that a person opened in this directory, if any.

        It is in `endpoints` then: the caller discards it if the launch fails.
        """
        port = self.spec.adopt_port
        endpoint = f"http://127.0.0.1:{port}"
        if port is None or endpoint in self._endpoints:
            return None
        # Two sessions in one window would type into each other's chat.
        self._endpoints.add(endpoint)  # before the first await: two launches must not adopt one IDE
        adopted = False
        try:
            adopted = await self._is_open_at(endpoint, record)
        finally:
            if not adopted:
                self._endpoints.discard(endpoint)
        return endpoint if adopted else None

    async def _is_open_at(self, endpoint: str, record: SessionRecord) -> bool:
        """Return whether the IDE at this debugging port has the record's directory open.

        For a launch that named no directory, any will do; the record gets it.
        """
        if not await has_page(endpoint, self.spec.pages):
            return False
        window = Window(endpoint, self.spec, self._script, self._context.ports, lambda: None)
        opened = await workspace(window)
        if opened is None:
            return False
        if Path(opened) != Path(record.path):
            if Path(record.path) != Path.home():
                return False
            record.path = opened
        return True

    async def _follow(
        self,
        record: SessionRecord,
        launch: Launch,
        endpoint: str,
        url: str | None,
        deadline: float,
    ) -> Adapter:
        """Return the adapter once its chat is usable."""
        IdeState(record).endpoint = endpoint
        adapter = self._adapter(record, launch.programs, endpoint)
        window = self._window(adapter, endpoint)
        adapter.attach(window, url)
        try:
            await self._wait_until_ready(launch, adapter, window, deadline)
            await adapter.prepare(record.model, max(1.0, deadline - time.monotonic()))
        except BaseException:
            await asyncio.shield(adapter.detach())
            raise
        adapter.refresh()
        return adapter

    async def _wait_until_ready(
        self, launch: Launch, adapter: IdeAdapter, window: Window, deadline: float
    ) -> None:
        """Open the chat, again and again, and return once it is usable."""
        opened = 0.0
        while not adapter.select_usable():
            if time.monotonic() > deadline:
                raise ApiError(
                    500,
                    f"The chat of {self.spec.display_name} was not there within "
                    f"{self.spec.ready_timeout:.0f} s ({window.connection_error or window.state})",
                )
            if adapter.observed.gone:
                raise launch.ended_error()
            if window.state == "there" and time.monotonic() > opened + OPEN_RETRY_INTERVAL:
                opened = time.monotonic()
                await _open(window, adapter.selected)
            await asyncio.sleep(_POLL)

    def _adapter(
        self, record: SessionRecord, programs: list[Program], endpoint: str | None
    ) -> IdeAdapter:
        folder = self._folder(record)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if endpoint is not None:
            self._endpoints.add(endpoint)

        def delete() -> None:
            self._endpoints.discard(endpoint or "")
            delete_files(record.id, folder)

        return IdeAdapter(
            self.spec,
            record,
            self._journal,
            folder,
            self._context.clock,
            programs=programs,
            delete_files=delete,
        )

    def _window(self, adapter: IdeAdapter, endpoint: str) -> Window:
        return Window(endpoint, self.spec, self._script, self._context.ports, adapter.refresh)

    def _folder(self, record: SessionRecord) -> Path:
        return self._context.ides / record.id


def delete_other_sessions(folder: Path, session_ids: Iterable[str]) -> None:
    """Delete files of sessions other than these: leftovers of a daemon that was killed."""
    ids = set(session_ids)
    for path in folder.glob("session_*"):
        if path.name not in ids:
            delete_files(path.name, path)


async def _open(window: Window, agent: str) -> None:
    try:
        await window.call("open", agent)
    except WindowError:
        return  # the page is being loaded: the caller tries again


async def has_page(endpoint: str, pages: str) -> bool:
    """Return whether a debugging port has a page whose address matches `pages`."""
    listed = await asyncio.to_thread(fetch, f"{endpoint}/json/list")
    return isinstance(listed, list) and any(_is_page(page, pages) for page in listed)


async def workspace(window: Window) -> str | None:
    """Return the directory that is open in the window, None if it is unknown."""
    window.start()
    try:
        deadline = time.monotonic() + _OPEN_TIMEOUT
        while window.state != "there":
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(_POLL)
        path = await window.call("workspace")
    except WindowError:
        return None
    finally:
        await window.stop()
    return str(Path(path).expanduser()) if isinstance(path, str) and path else None  # noqa: ASYNC240


def _is_page(page: Any, pages: str) -> bool:
    return (
        isinstance(page, dict)
        and page.get("type") == "page"
        and pattern(pages).matches(str(page.get("url")), otherwise=False)
    )
