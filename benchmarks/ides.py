"""The delay and the cost of observing an IDE: a test page, and real ones."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psutil
from playwright.async_api import CDPSession, Page, async_playwright
from tests.daemon.agents.ide.desk import Ide, faulty_desk, programs_of, real_desk
from tests.daemon.agents.ide.kinds import KINDS
from tests.daemon.agents.kind import AgentKind
from tests.daemon.agents.machine import stub_model, until

from benchmarks.bench import Bench, Sections
from benchmarks.report import Figure, Section, Target, not_measured, percentile
from outrider.contract.commands import Screenshot
from outrider.daemon.agents.ide.debugging_port import is_installed

_CALL = "() => { const at = Date.now(); window.__bare(); return at }"


_DELAY: Final = Target("at most", 0.5)
_IDLE_COST: Final = Target("at most", 1.0)

_CHANGES: Final = 60
_PICTURES: Final = 15
_COST_SECONDS: Final = 30
_SETTLE: Final = 3.0

_SHOW: Final = "html => Date.now() + (document.getElementById('busy').innerHTML = html, 0)"
_BUSY: Final = '<i class="working">x</i>'


def ides(bench: Bench) -> Sections:
    """Measure a page of our own, and the real IDEs that `make test-ides` has installed here."""
    if shutil.which("chromium") is None or not is_installed():
        yield not_measured("IDEs", "it needs chromium and playwright")
        return
    bench.progress("ides: a page of our own")
    yield asyncio.run(_own_page(_folder(bench, "page")))
    for kind in KINDS:
        if bench.only and kind.type not in bench.only:
            continue
        if not all(programs.exists() for programs in programs_of(kind)):
            yield not_measured(f"IDEs: {kind.type}", "`make test-ides` installs it")
            continue
        bench.progress(f"ides: {kind.type}")
        yield asyncio.run(_real(_folder(bench, kind.type), kind))


def _folder(bench: Bench, name: str) -> Path:
    folder = bench.stage.directory / name
    folder.mkdir()
    return folder


async def _own_page(folder: Path) -> Section:
    async with faulty_desk(folder) as desk:
        ide = await desk.open()
        async with _bare(ide) as baseline:
            figures = [*await _delays(ide, baseline), await _pictures(ide, baseline)]
        return Section("IDEs: a page of our own", [*figures, await _cost()])


async def _real(folder: Path, kind: AgentKind) -> Section:
    with stub_model(folder) as model:
        async with real_desk(folder, kind, programs_of(kind), model.url) as desk:
            began = time.perf_counter()
            ide = await desk.open()
            launch = Figure("launch to ready", "s", [time.perf_counter() - began])
            await ide.turn("hello")
            async with _bare(ide) as baseline:
                pictures = await _pictures(ide, baseline)
            return Section(f"IDEs: {kind.type}", [pictures, await _cost(), launch])


class _Bare:
    """A second connection to an IDE's window."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self._page = page
        self._session = session
        self._called = asyncio.Event()

    async def listen(self) -> None:
        """Let the page call out."""
        await self._page.expose_binding("__bare", lambda _: self._called.set())

    async def call(self) -> float:
        """Return the seconds from a call in the page to its arrival here."""
        self._called.clear()
        at: float = await self._page.evaluate(_CALL)
        async with asyncio.timeout(5):
            await self._called.wait()
        return max(0.0, time.time() - at / 1000)

    async def picture(self) -> float:
        """Return the seconds that the browser needs for a picture of the page."""
        began = time.perf_counter()
        await self._session.send("Page.captureScreenshot", {"format": "png"})
        return time.perf_counter() - began


@asynccontextmanager
async def _bare(ide: Ide) -> AsyncIterator[_Bare]:
    """Connect to the IDE's window beside Outrider."""
    endpoint = str(ide.evidence()["endpoint"])
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint, no_defaults=True)
        page = next(page for page in browser.contexts[0].pages if page.url == ide.page.url)
        one = _Bare(page, await page.context.new_cdp_session(page))
        await one.listen()
        yield one
        await browser.close()


async def _delays(ide: Ide, baseline: _Bare) -> list[Figure]:
    """Change the page, and wait for the status; beside it, for a bare call out of the page."""
    ours, least = [], []
    for n in range(_CHANGES):
        wanted, html = ("generating", _BUSY) if n % 2 == 0 else ("idle", "")
        least.append(await baseline.call())
        changed = await ide.page.evaluate(_SHOW, html) / 1000
        await until(lambda status=wanted: ide.status == status, 5)  # type: ignore[misc]
        ours.append(time.time() - changed)
    tail = f"page changed to status, 95th percentile of {_CHANGES}"
    return [
        Figure(tail, "s", [percentile(ours, 95)], [percentile(least, 95)], _DELAY),
        Figure("page changed to status", "s", ours, least),
    ]


async def _pictures(ide: Ide, baseline: _Bare) -> Figure:
    ours, least = [], []
    for _ in range(_PICTURES):
        least.append(await baseline.picture())
        began = time.perf_counter()
        await ide.session.screenshot(Screenshot())
        ours.append(time.perf_counter() - began)
    return Figure("screenshot", "s", ours, baseline=least)


async def _cost() -> Figure:
    """Measure the processor time of the daemon and its driver while nothing happens."""
    await asyncio.sleep(_SETTLE)
    own = psutil.Process()  # it is the daemon here
    children = own.children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    watching = [own, *(one for one in alive if "playwright" in " ".join(one.cmdline()))]
    before, began = _seconds_of(watching), time.perf_counter()
    await asyncio.sleep(_COST_SECONDS)
    share = (_seconds_of(watching) - before) / (time.perf_counter() - began) * 100
    return Figure("daemon and driver, idle", "% of a core", [share], target=_IDLE_COST)


def _seconds_of(processes: list[psutil.Process]) -> float:
    return sum(p.cpu_times().user + p.cpu_times().system for p in processes)
