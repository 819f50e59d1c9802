"""How soon the dashboard is there, and how smooth it stays, in a Chromium with a slow processor."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

from benchmarks.bench import Bench, Sections
from benchmarks.machine_agent import SCRIPTED, Agent, machine_agent
from benchmarks.processes import MEGABYTE, BenchmarkError
from benchmarks.report import Figure, Section, Target, not_measured, spread
from benchmarks.service import EMAIL, PASSWORD, Installation
from outrider.cloud.api.dashboard import is_built
from outrider.daemon.agents.ide.debugging_port import is_installed

_THROTTLING: Final = 4
"""How many times slower than this computer's the browser's processor is."""

_MESSAGES: Final = 5000
_DELTA_SECONDS: Final = 30
_DELTAS_A_SECOND: Final = 100
_TITLES: Final = 150
_PATIENCE_MS: Final = 60_000

_SMALL: Final = Target("at most", 204_800)
_INTERACTIVE: Final = Target("at most", 1500)
_OPEN: Final = Target("at most", 1000)
_SMOOTH: Final = Target("at most", 100)
_FLAT: Final = Target("at most", 5)
_NO_GAP: Final = Target("at most", 0)

# Notes the moment at which an element that is waited for can be used: the frame after it was there.
_WATCH: Final = """
selector => {
  window.__ready = 0
  const look = () => {
    if (!document.querySelector(selector)) return requestAnimationFrame(look)
    requestAnimationFrame(() => setTimeout(() => { window.__ready = performance.now() }))
  }
  look()
}
"""

_LOADED: Final = """
() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .filter(one => !one.name.includes('/api/'))
  .reduce((sum, one) => sum + one.encodedBodySize, 0)
"""

# The longest time between two frames.
_FRAMES: Final = """
() => {
  window.__longest = 0
  let last = performance.now()
  const frame = now => {
    window.__longest = Math.max(window.__longest, now - last)
    last = now
    requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
}
"""

# Scrolls up at 6,000 px a second to the first message; notes the pixels without a message.
_SCROLL: Final = """
() => new Promise(done => {
  const log = document.querySelector('[role=log]')
  let gap = 0, last = performance.now(), longest = 0
  const frame = now => {
    longest = Math.max(longest, now - last)
    const box = log.getBoundingClientRect()
    const rows = [...log.querySelectorAll('[data-index]')].map(row => row.getBoundingClientRect())
      .filter(row => row.bottom > box.top && row.top < box.bottom).sort((a, b) => a.top - b.top)
    const covered = rows.reduce((at, row) => {
      gap = Math.max(gap, row.top - at)
      return Math.max(at, row.bottom)
    }, Math.max(box.top, log.firstElementChild.getBoundingClientRect().top + 56))
    gap = Math.max(gap, Math.min(box.bottom - 24, box.bottom) - covered)
    if (log.innerText.includes('Message 1 of')) return done({gap: Math.round(gap), longest})
    log.scrollTop -= 6 * Math.min(50, now - last)
    last = now
    requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
})
"""

# Leads the browser's tabs in place of one of the dashboard: the deltas come at an exact pace.
_LEAD: Final = """
() => new Promise(leading => navigator.locks.request('outrider-events', () => new Promise(() => {
  window.__channel = new BroadcastChannel('outrider-events')
  const live = () => ({type: 'state', state: {live: true, lastAt: Date.now()}})
  window.__channel.onmessage = () => window.__channel.postMessage(live())
  leading()
})))
"""
_DELTAS: Final = """
([targetId, pace, seconds]) => new Promise(done => {
  const words = ['These', 'are', '**words**', 'that', '`arrive`', 'one', 'after', 'the', 'other.']
  const began = performance.now()
  let revision = 0
  const timer = setInterval(() => {
    const due = Math.floor((performance.now() - began) / 1000 * pace)
    while (revision < Math.min(due, pace * seconds)) {
      const text = words[revision % words.length] + (revision % 60 === 59 ? '\\n\\n' : ' ')
      const data = {targetId, messageId: 'msg_bench', revision: revision++, op: 'append', text}
      const frame = {event: 'chat:delta', data: JSON.stringify(data)}
      window.__channel.postMessage({type: 'frame', frame})
    }
    if (revision < pace * seconds) return
    clearInterval(timer)
    done(revision)
  }, 1000 / pace)
})
"""

# Each title of the session is the time at which the agent gave it, in seconds.
_DELAYS: Final = """
() => {
  window.__delays = []
  let known = document.querySelector('h1').textContent
  new MutationObserver(() => {
    const title = document.querySelector('h1').textContent
    if (title === known) return
    known = title
    requestAnimationFrame(() => {
      const pixels = new MessageChannel()
      pixels.port1.onmessage = () => window.__delays.push(Date.now() - Number(title) * 1000)
      pixels.port2.postMessage(0)
    })
  }).observe(document.querySelector('h1'), {characterData: true, childList: true, subtree: true})
}
"""


def dashboard(bench: Bench) -> Sections:
    """Measure the built dashboard; without it, Chromium or Playwright, nothing is measured."""
    if not is_built() or shutil.which("chromium") is None or not is_installed():
        yield not_measured("Dashboard", "it needs `make web`, chromium and playwright")
        return
    with (
        machine_agent(Installation(bench.stage, "service"), providers=SCRIPTED) as machine,
        _chromium() as chromium,
    ):
        agent, full = machine.launch("demo"), machine.launch("demo")
        agent.send("hello")
        agent.wait_until_idle()
        bench.progress(f"a session of {_MESSAGES:,} messages")
        full.send(f"messages {_MESSAGES}")
        full.wait_until_idle()
        browser = _Browser(chromium, machine.server.url)
        yield _first_load(browser, agent, bench)
        yield _long_session(browser, full, bench)
        yield _deltas(browser, agent, bench)
        yield _pixels(browser, machine.launch("scripted"), bench)


@contextmanager
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        executable = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


class _Browser:
    """Opens pages of a dashboard, signed in and with a slow processor."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self._url = url

    @contextmanager
    def context(self) -> Iterator[BrowserContext]:
        """Provide a signed-in browser with an empty cache."""
        context = self._browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(_PATIENCE_MS)
        login = {"email": EMAIL, "password": PASSWORD}
        answer = context.request.post(f"{self._url}/api/v1/auth/login", data=login)
        if not answer.ok:
            raise BenchmarkError(f"log in: {answer.text()}")
        yield context
        context.close()

    @contextmanager
    def page(self, path: str, selector: str) -> Iterator[Page]:
        """Provide a page that has just been loaded, once `selector` is there."""
        with self.context() as context:
            yield self.open(context, path, selector)[0]

    def open(self, context: BrowserContext, path: str, selector: str) -> tuple[Page, CDPSession]:
        """Open a page and wait for `selector`."""
        page = context.new_page()
        session = context.new_cdp_session(page)
        session.send("Emulation.setCPUThrottlingRate", {"rate": _THROTTLING})
        page.add_init_script(f"({_WATCH})({selector!r})")
        page.goto(f"{self._url}{path}")
        _wait_until_ready(page)
        return page, session


def _ready(page: Page) -> float:
    """Return the milliseconds from the navigation until the page could be used."""
    return float(page.evaluate("window.__ready"))


def _wait_until_ready(page: Page) -> None:
    """Wait for what `_WATCH` watches; the page's policy forbids Playwright's own way."""
    deadline = time.monotonic() + _PATIENCE_MS / 1000
    while not page.evaluate("window.__ready > 0"):
        if time.monotonic() > deadline:
            raise BenchmarkError(f"{page.url} has not become ready")
        time.sleep(0.02)


def _settled(page: Page) -> None:
    """Wait until the page has loaded nothing more for half a second."""
    loaded = -1
    while (now := page.evaluate("performance.getEntriesByType('resource').length")) != loaded:
        loaded = now
        time.sleep(0.5)


def _chat(agent: Agent) -> str:
    return f"/sessions/{agent.target}"


def _first_load(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    figures = []
    for name, path, selector in [
        ("sessions", "/", "a[data-row]"),
        ("a session", _chat(agent), "[role=log] [data-index] h4"),
    ]:
        sizes, times = [], []
        for _ in bench.each_round(f"first load: {name}"):
            with browser.page(path, selector) as page:
                times.append(_ready(page))
                _settled(page)
                sizes.append(float(page.evaluate(_LOADED)))
        figures.append(Figure(f"{name}: size, compressed", "bytes", sizes, target=_SMALL))
        figures.append(Figure(f"{name}: interactive", "ms", times, target=_INTERACTIVE))
    return Section(f"Dashboard: first load (processor {_THROTTLING}x slower)", figures)


def _long_session(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    row = f"[role=log] [data-index]:has-text('Message {_MESSAGES} of')"
    loaded, opened, gaps, longest = [], [], [], []
    for _ in bench.each_round("long session"):
        with browser.page(_chat(agent), "[role=log] [data-index]") as page:
            loaded.append(_ready(page))
            page.locator(row).wait_for()
        with browser.page("/", f"a[href*='{agent.session}']") as page:
            _settled(page)
            began = page.evaluate("performance.now()")
            page.evaluate(f"({_WATCH})('[role=log] [data-index]')")
            page.locator(f"a[href*='{agent.session}']").first.click()
            _wait_until_ready(page)
            opened.append(_ready(page) - began)
            page.locator(row).wait_for()
            found: dict[str, float] = page.evaluate(_SCROLL)
            gaps.append(float(found["gap"]))
            longest.append(found["longest"])
    return Section(
        f"Dashboard: a session of {_MESSAGES:,} messages",
        [
            Figure("opened from the list", "ms", opened, target=_OPEN),
            Figure("loaded by its address", "ms", loaded, target=_OPEN),
            Figure("scrolled to the first message: largest gap", "px", gaps, target=_NO_GAP),
            Figure("scrolled: longest frame", "ms", longest),
        ],
    )


def _deltas(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    longest, growth = [], []
    for _ in bench.each_round(f"{_DELTAS_A_SECOND} deltas a second"):
        with browser.context() as context:
            leader = context.new_page()
            leader.goto(f"{agent.machine.server.url}/docs")
            leader.evaluate(_LEAD)
            page, session = browser.open(context, _chat(agent), "[role=log] [data-index]")
            _settled(page)
            leader.evaluate(_DELTAS, [agent.target, _DELTAS_A_SECOND, 3])
            before = _heap(session)
            page.evaluate(_FRAMES)
            # The pieces after those of the warm-up begin a new message.
            deltas = _DELTAS.replace("msg_bench", "msg_bench_2")
            leader.evaluate(deltas, [agent.target, _DELTAS_A_SECOND, _DELTA_SECONDS])
            longest.append(float(page.evaluate("window.__longest")))
            growth.append((_heap(session) - before) / MEGABYTE)
    return Section(
        f"Dashboard: {_DELTAS_A_SECOND} deltas a second for {_DELTA_SECONDS} s in one message",
        [
            Figure("longest frame", "ms", longest, target=_SMOOTH),
            Figure("growth of the page's memory", "MB", growth, target=_FLAT),
        ],
    )


def _heap(session: CDPSession) -> float:
    """Return the bytes that the page's objects need."""
    session.send("HeapProfiler.collectGarbage")
    usage: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"])


def _pixels(browser: _Browser, agent: Agent, bench: Bench) -> Section:
    found: list[float] = []
    for _ in bench.each_round("event to pixel"):
        with browser.page(_chat(agent), "h1") as page:
            _settled(page)
            page.evaluate(_DELAYS)
            agent.send(f"clock {_TITLES}")
            agent.wait_until_idle()
            time.sleep(1)
            delays: list[float] = page.evaluate("window.__delays")
            if not delays:
                raise BenchmarkError("the page has shown no title")
            found += delays
    agent.stop()
    title = "Dashboard: from an agent's event (a title) to the changed pixel"
    return Section(title, spread("delay", "ms", found, _SMOOTH))
