"""The delay and the cost of observing an IDE: a test page, and real ones."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from playwright.async_api import CDPSession, Page, async_playwright
from tests.machine.agents.ide.desk import Ide, faulty_desk, programs_of, real_desk
from tests.machine.agents.ide.kinds import KINDS
from tests.machine.agents.kind import AgentKind
from tests.machine.agents.machine import stub_model, until

from benchmarks.bench import Bench, Sections
from benchmarks.processes import busy
from benchmarks.report import Figure, Section, Target, not_measured, percentile
from outrider.contract.commands import Screenshot
from outrider.machine.agents.ide.debugging_port import is_installed

_CHANGES: Final = 60
_PICTURES: Final = 15
_COST_SECONDS: Final = 30
_SETTLE: Final = 3.0

_CALL: Final = "() => { const at = Date.now(); window.__bare(); return at }"
_SHOW: Final = "html => Date.now() + (document.getElementById('busy').innerHTML = html, 0)"
_BUSY: Final = '<i class="working">x</i>'


def ides(bench: Bench) -> Sections:
    """Measure a page of our own, and the real IDEs that `make test-ides` has installed here."""
    if shutil.which("chromium") is None or not is_installed():
        yield not_measured("IDEs", "it needs chromium and playwright")
        return
    bench.progress("ides: a page of our own")
    yield asyncio.run(_own_page(bench.stage.directory / "page"))
    for kind in KINDS:
        if bench.only and kind.type not in bench.only:
            continue
        if not all(programs.exists() for programs in programs_of(kind)):
            yield not_measured(f"IDEs: {kind.type}", "`make test-ides` installs it")
            continue
        bench.progress(f"ides: {kind.type}")
        (bench.stage.directory / kind.type).mkdir()
        yield asyncio.run(_real(bench.stage.directory / kind.type, kind))


async def _own_page(folder: Path) -> Section:
    async with faulty_desk(folder) as desk:
        ide = await desk.open()
        async with _bare(ide) as bare:
            figures = [*await _delays(ide, bare), await _pictures(ide, bare)]
        return Section("IDEs: a page of our own", [*figures, await _cost()])


async def _real(folder: Path, kind: AgentKind) -> Section:
    with stub_model(folder) as model:
        async with real_desk(folder, kind, programs_of(kind), model.url) as desk:
            began = time.perf_counter()
            ide = await desk.open()
            launch = Figure("launch to ready", "s", [time.perf_counter() - began])
            await ide.turn("hello")
            async with _bare(ide) as bare:
                pictures = await _pictures(ide, bare)
            return Section(f"IDEs: {kind.type}", [pictures, await _cost(), launch])


@dataclass
class _Bare:
    """The baseline: a second connection to an IDE's window, without Outrider."""

    page: Page
    session: CDPSession
    called: asyncio.Event

    async def call(self) -> float:
        """Return the seconds from a call in the page to its arrival here."""
        self.called.clear()
        at: float = await self.page.evaluate(_CALL)
        async with asyncio.timeout(5):
            await self.called.wait()
        return max(0.0, time.time() - at / 1000)

    async def picture(self) -> float:
        """Return the seconds that the browser needs for a picture of the page."""
        began = time.perf_counter()
        await self.session.send("Page.captureScreenshot", {"format": "png"})
        return time.perf_counter() - began


@asynccontextmanager
async def _bare(ide: Ide) -> AsyncIterator[_Bare]:
    """Connect to the IDE's window beside Outrider."""
    endpoint = str(ide.evidence()["endpoint"])
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(endpoint, no_defaults=True)
        page = next(page for page in browser.contexts[0].pages if page.url == ide.page.url)
        called = asyncio.Event()
        await page.expose_binding("__bare", lambda _: called.set())
        yield _Bare(page, await page.context.new_cdp_session(page), called)
        await browser.close()


async def _delays(ide: Ide, bare: _Bare) -> list[Figure]:
    """Change the page, and wait for the status; beside it, for a bare call out of the page."""
    delays = Figure("page changed to status", "s")
    for n in range(_CHANGES):
        wanted, html = ("generating", _BUSY) if n % 2 == 0 else ("idle", "")
        delays.baseline.append(await bare.call())
        changed = await ide.page.evaluate(_SHOW, html) / 1000
        await until(lambda status=wanted: ide.status == status, 5)  # type: ignore[misc]
        delays.runs.append(time.time() - changed)
    tail = Figure(
        f"page changed to status, 95th percentile of {_CHANGES}",
        "s",
        [percentile(delays.runs, 95)],
        [percentile(delays.baseline, 95)],
        Target("at most", 0.5),
    )
    return [tail, delays]


async def _pictures(ide: Ide, bare: _Bare) -> Figure:
    pictures = Figure("screenshot", "s")
    for _ in range(_PICTURES):
        pictures.baseline.append(await bare.picture())
        began = time.perf_counter()
        await ide.session.screenshot(Screenshot())
        pictures.runs.append(time.perf_counter() - began)
    return pictures


async def _cost() -> Figure:
    """Measure the processor time of the daemon and its driver while nothing happens."""
    await asyncio.sleep(_SETTLE)
    own = psutil.Process()  # it is the daemon here
    alive = [one for one in own.children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    driver = [one for one in alive if "playwright" in " ".join(one.cmdline())]
    share = await asyncio.to_thread(busy, [own, *driver], _COST_SECONDS)
    name = "daemon and driver, idle"
    return Figure(name, "% of a core", [share], target=Target("at most", 1.0))
