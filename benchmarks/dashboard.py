"""How soon the dashboard is there, and how smooth it stays, in a Chromium with a slow processor."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright
from tests.rig.browser import page_storage
from tests.rig.people import PAGE_SECRET

from benchmarks.bench import Bench, Sections
from benchmarks.machine_agent import SCRIPTED, machine_agent, wait_until_idle
from benchmarks.processes import MEGABYTE, BenchmarkError
from benchmarks.report import NONE, Figure, Section, Target, not_measured, spread
from benchmarks.service import EMAIL, PASSWORD, Installation
from outrider.machine.agents.ide.debugging_port import is_installed
from outrider.sdk import Agent
from outrider.service.http.dashboard import is_built

_THROTTLING: Final = 4
"""How many times slower than this computer's the browser's processor is."""

_MESSAGES: Final = 5000
_DELTA_SECONDS: Final = 30
_DELTAS_A_SECOND: Final = 100
_TITLES: Final = 150
_TIMEOUT_MS: Final = 60_000
_SCRIPT: Final = Path(__file__).with_name("dashboard.js")
"""What runs in the pages, as `bench.…`."""


def dashboard(bench: Bench) -> Sections:
    """Measure the built dashboard; without it, Chromium or Playwright, nothing is measured."""
    if not is_built() or shutil.which("chromium") is None or not is_installed():
        yield not_measured("Dashboard", "it needs `make web`, chromium and playwright")
        return
    with (
        machine_agent(Installation(bench.stage, "service"), providers=SCRIPTED) as machine,
        sync_playwright() as playwright,
        playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        ) as chromium,
    ):
        agent, full = machine.launch("demo"), machine.launch("demo")
        agent.send("hello")
        wait_until_idle(agent)
        bench.progress(f"a session of {_MESSAGES:,} messages")
        full.send(f"messages {_MESSAGES}")
        wait_until_idle(full)
        browser = _Browser(chromium, machine.server.url)
        yield _first_load(browser, agent, bench)
        yield _long_session(browser, full, bench)
        yield _deltas(browser, agent, bench)
        yield _pixels(browser, machine.launch("scripted"), bench)


class _Browser:
    """Opens pages of a dashboard, signed in and with a slow processor."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url

    @contextmanager
    def context(self) -> Iterator[BrowserContext]:
        """Provide a signed-in browser with an empty cache."""
        with self._browser.new_context(
            base_url=self._url,
            storage_state=page_storage(self._url),
            viewport={"width": 1280, "height": 800},
        ) as context:
            context.set_default_timeout(_TIMEOUT_MS)
            context.add_init_script(path=_SCRIPT)
            login = {"email": EMAIL, "password": PASSWORD}
            headers = {"X-Outrider-Page-Secret": PAGE_SECRET}
            answer = context.request.post("/api/v1/auth/login", data=login, headers=headers)
            if not answer.ok:
                raise BenchmarkError(f"log in: {answer.text()}")
            yield context

    @contextmanager
    def page(self, path: str, selector: str) -> Iterator[Page]:
        """Provide a page that has just been loaded, once `selector` is there."""
        with self.context() as context:
            yield _opened(context, path, selector)[0]


def _opened(context: BrowserContext, path: str, selector: str) -> tuple[Page, CDPSession]:
    """Open a page and wait for `selector`."""
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": _THROTTLING})
    page.add_init_script(f"bench.watch({selector!r})")
    page.goto(path)
    _wait_until_ready(page)
    return page, session


def _wait_until_ready(page: Page) -> float:
    """Wait for what the script watches; the page's policy forbids Playwright's own way.

    Returns:
        The milliseconds from the navigation until the page could be used.
    """
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    while not (ready := page.evaluate("bench.readyAt")):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{page.url} has not become ready")
        time.sleep(0.02)
    return float(ready)


def _wait_until_loaded(page: Page) -> None:
    """Wait until the page has loaded nothing more for half a second."""
    loaded = -1
    while (now := page.evaluate("performance.getEntriesByType('resource').length")) != loaded:
        loaded = now
        time.sleep(0.5)


def _first_load(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    figures = []
    for name, path, selector in [
        ("sessions", "/", "a[data-row]"),
        ("a session", f"/sessions/{agent.id}", "[role=log] [data-index] h4"),
    ]:
        size = Figure(f"{name}: size, compressed", "bytes", target=Target("at most", 204_800))
        ready = Figure(f"{name}: interactive", "ms", target=Target("at most", 1500))
        for _ in bench.each_round(f"first load: {name}"):
            with browser.page(path, selector) as page:
                ready.runs.append(_wait_until_ready(page))
                _wait_until_loaded(page)
                size.runs.append(float(page.evaluate("bench.loadedBytes()")))
        figures += [size, ready]
    return Section(f"Dashboard: first load (processor {_THROTTLING}x slower)", figures)


def _long_session(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    soon = Target("at most", 1000)
    opened = Figure("opened from the list", "ms", target=soon)
    loaded = Figure("loaded by its address", "ms", target=soon)
    gap = Figure("scrolled to the first message: largest gap", "px", target=NONE)
    longest = Figure("scrolled: longest frame", "ms")
    row, link = "[role=log] [data-index]", f"a[href*='{agent.session_id}']"
    last = f"{row}:has-text('Message {_MESSAGES} of')"
    for _ in bench.each_round("long session"):
        with browser.page(f"/sessions/{agent.id}", row) as page:
            loaded.runs.append(_wait_until_ready(page))
            page.locator(last).wait_for()
        with browser.page("/", link) as page:
            _wait_until_loaded(page)
            began = page.evaluate("performance.now()")
            page.evaluate(f"bench.watch({row!r})")
            page.locator(link).first.click()
            opened.runs.append(_wait_until_ready(page) - began)
            page.locator(last).wait_for()
            gap.runs.append(float(page.evaluate("bench.scroll()")))
            longest.runs.append(page.evaluate("bench.longest"))
    title = f"Dashboard: a session of {_MESSAGES:,} messages"
    return Section(title, [opened, loaded, gap, longest])


def _deltas(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    longest = Figure("longest frame", "ms", target=Target("at most", 100))
    growth = Figure("growth of the page's memory", "MB", target=Target("at most", 5))
    for _ in bench.each_round(f"{_DELTAS_A_SECOND} deltas a second"):
        with browser.context() as context:
            leader = context.new_page()
            leader.goto("/docs")
            leader.evaluate("bench.lead()")
            page, session = _opened(context, f"/sessions/{agent.id}", "[role=log] [data-index]")
            _wait_until_loaded(page)
            leader.evaluate(f"bench.sendDeltas('{agent.id}', 'msg_warm_up', {_DELTAS_A_SECOND}, 3)")
            before = _heap(session)
            page.evaluate("bench.frames()")
            leader.evaluate(
                f"bench.sendDeltas('{agent.id}', 'msg_bench', {_DELTAS_A_SECOND}, {_DELTA_SECONDS})"
            )
            longest.runs.append(float(page.evaluate("bench.longest")))
            growth.runs.append((_heap(session) - before) / MEGABYTE)
    title = f"{_DELTAS_A_SECOND} deltas a second for {_DELTA_SECONDS} s in one message"
    return Section(f"Dashboard: {title}", [longest, growth])


def _heap(session: CDPSession) -> float:
    """Return the bytes that the page's objects need."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def _pixels(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    found: list[float] = []
    for _ in bench.each_round("event to pixel"):
        with browser.page(f"/sessions/{agent.id}", "h1") as page:
            _wait_until_loaded(page)
            page.evaluate("bench.watchTitles()")
            agent.send(f"clock {_TITLES}")
            wait_until_idle(agent)
            time.sleep(1)
            delays: list[float] = page.evaluate("bench.delays")
            if not delays:
                raise BenchmarkError("the page has shown no title")
            found += delays
    title = "Dashboard: from an agent's event (a title) to the changed pixel"
    return Section(title, spread("delay", "ms", found, Target("at most", 100)))
