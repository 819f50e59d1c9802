"""The providers of IDEs, from their files: launch one, adopt one, find one again."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from outrider.contract.errors import ApiError, bad_request
from outrider.contract.resources import Provider as Description
from outrider.daemon.agents.adapter import Adapter
from outrider.daemon.agents.ide.adapter import IdeAdapter
from outrider.daemon.agents.ide.adopting import has_page, workspace
from outrider.daemon.agents.ide.driver import Driver, is_installed
from outrider.daemon.agents.ide.provider_file import IdeFile
from outrider.daemon.agents.ide.running import Running
from outrider.daemon.agents.ide.starting import Starting, find, forget
from outrider.daemon.agents.ide.state import IdeState
from outrider.daemon.agents.ide.window import Window, WindowError
from outrider.daemon.agents.session import Clock
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

_POLL: Final = 0.1

OPEN_AGAIN: Final = 1.5
"""Seconds between two attempts to open the chat of an IDE that starts."""


class IdeProvider:
    """One kind of IDE.

    Args:
        folder: where each session keeps its chats, its browser's profile and its logs.
        environment: what the IDE inherits, before the file's changes.
        followed: the addresses of all IDEs in use, shared by all providers.
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
        followed: set[str],
    ) -> None:
        self.spec = file
        self._script = script
        self._folder = folder
        self._inherited = environment
        self._journal = journal
        self._clock = clock
        self._driver = driver
        self._followed = followed

    def describe(self) -> Description:
        """Return what the API tells of it. Looks for its program on the agent's PATH."""
        return self.spec.described(find(self.spec, self._inherited, self.spec.command[0]))

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the IDE, or adopt one that listens; return once its chat can be used."""
        cdp = IdeState(record).cdp
        self._check(cdp, record.model)
        deadline = time.monotonic() + self.spec.ready_timeout
        starting = Starting(
            self.spec,
            record,
            self._state(record),
            self._inherited,
            journal=self._journal,
            deadline=deadline,
        )
        if cdp and (adopted := await self._adoptable(record)) is not None:
            return await self._follow(record, starting, adopted, None, deadline)
        try:
            endpoint, url = await starting.start(cdp=cdp)
            if endpoint is not None:
                return await self._follow(record, starting, endpoint, url, deadline)
        except BaseException:
            await asyncio.shield(starting.abandon())
            raise
        adapter = self._adapter(record, starting.programs, None)
        adapter.attach(None)
        return adapter

    async def restore(self, record: SessionRecord) -> Adapter:
        """Find the IDE's window again; it is connected to in the background."""
        state = IdeState(record)
        programs, endpoint = state.programs, state.endpoint
        adapter = self._adapter(record, programs, endpoint)
        name = self.spec.display_name
        if not all(program.runs for program in programs):
            adapter.lost(f"{name} has ended")
        elif endpoint is None and state.cdp:
            adapter.lost(f"The machine agent stopped while {name} was being launched")
        elif endpoint is not None and not is_installed():
            adapter.lost("Playwright is not installed any more: `pip install 'outrider[ide]'`")
        else:
            adapter.attach(None if endpoint is None else self._window(adapter, endpoint))
        return adapter

    def _check(self, cdp: bool, model: str | None) -> None:
        if cdp and not is_installed():
            raise bad_request(
                "IDEs are driven by Playwright, which is not installed on this machine: "
                "`pip install 'outrider[ide]'` there, then start its agent again",
                "type",
            )
        if model is not None and not cdp:
            raise bad_request(
                f"{self.spec.display_name} is told its model over its debugging port: "
                "launch it with enableCdp true, or without `model`",
                "model",
            )

    async def _adoptable(self, record: SessionRecord) -> str | None:
        """Return the address of an IDE that a person has opened with a debugging port, here."""
        port = self.spec.adopt_port
        endpoint = f"http://127.0.0.1:{port}"
        if port is None or endpoint in self._followed:
            return None
        if not await has_page(endpoint, self.spec.pages):
            return None
        window = Window(endpoint, self.spec, self._script, self._driver, lambda: None)
        opened = await workspace(window)
        if opened is not None and Path(opened) != Path(record.path):
            if Path(record.path) != Path.home():
                return None
            record.path = opened  # nobody asked for another directory
        return endpoint

    async def _follow(
        self,
        record: SessionRecord,
        starting: Starting,
        endpoint: str,
        url: str | None,
        deadline: float,
    ) -> Adapter:
        """Return the adapter once the chat is there."""
        IdeState(record).endpoint = endpoint
        adapter = self._adapter(record, starting.programs, endpoint)
        window = self._window(adapter, endpoint)
        adapter.attach(window, url)
        try:
            await self._until_ready(starting, adapter, window, deadline)
            await adapter.prepare(record.model, max(1.0, deadline - time.monotonic()))
        except BaseException:
            await asyncio.shield(adapter.detach())
            self._followed.discard(endpoint)
            raise
        adapter.look()
        return adapter

    async def _until_ready(
        self, starting: Starting, adapter: IdeAdapter, window: Window, deadline: float
    ) -> None:
        """Open the chat and return once it is there."""
        opened = 0.0
        while not adapter.begin():
            if time.monotonic() > deadline:
                raise ApiError(
                    500,
                    f"The chat of {self.spec.display_name} was not there within "
                    f"{self.spec.ready_timeout:.0f} s ({window.trouble or window.state})",
                )
            if adapter.observed.gone:
                raise starting.ended()
            if window.state == "there" and time.monotonic() > opened + OPEN_AGAIN:
                opened = time.monotonic()
                await _open(window, adapter.selected)
            await asyncio.sleep(_POLL)

    def _adapter(
        self, record: SessionRecord, programs: list[Running], endpoint: str | None
    ) -> IdeAdapter:
        state = self._state(record)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if endpoint is not None:
            self._followed.add(endpoint)

        def over() -> None:
            self._followed.discard(endpoint or "")
            forget(record.id, state)

        return IdeAdapter(
            self.spec, record, self._journal, state, self._clock, programs=programs, forget=over
        )

    def _window(self, adapter: IdeAdapter, endpoint: str) -> Window:
        return Window(endpoint, self.spec, self._script, self._driver, adapter.look)

    def _state(self, record: SessionRecord) -> Path:
        return self._folder / record.id


def forget_others(folder: Path, session_ids: Iterable[str]) -> None:
    """Delete what sessions that are no more have left: a daemon may be killed before it does."""
    kept = set(session_ids)
    for path in folder.glob("session_*"):
        if path.name not in kept:
            forget(path.name, path)


async def _open(window: Window, agent: str) -> None:
    try:
        await window.ask("open", agent)
    except WindowError:
        return  # the page is being loaded: it is asked again
