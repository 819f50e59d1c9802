"""An IDE that a person has started: used as it is, found again, never ended."""

import asyncio
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from outrider.contract.errors import ApiError
from outrider.daemon.agents.ide import provider
from outrider.daemon.agents.ide.debugging_port import fetch
from tests.daemon.agents.ide.desk import Desk
from tests.daemon.agents.machine import until
from tests.servers.server import free_port

pytestmark = [pytest.mark.ide, pytest.mark.timeout(90)]


def adopt_port(desk: Desk) -> int:
    """Return the port at which an IDE is adopted."""
    file = desk.folder / "config" / "providers" / "faulty.toml"
    port = tomllib.loads(file.read_text())["adopt_port"]
    assert isinstance(port, int)
    return port


@contextmanager
def by_hand(desk: Desk, port: int, debug_port: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the IDE as a person would have started it."""
    program = Path(__file__).with_name("faulty_ide.py")
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(subprocess.Popen([sys.executable, str(program), str(port)]))
        started.append(browser(desk, port, debug_port))
        yield started
    finally:
        for process in started:
            children = psutil.Process(process.pid).children(recursive=True)
            for child in children:
                child.kill()
            process.kill()
            process.wait()


def browser(desk: Desk, port: int, debug_port: int) -> subprocess.Popen[bytes]:
    """Start the browser of it."""
    return subprocess.Popen(
        [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            f"--remote-debugging-port={debug_port}", f"--user-data-dir={desk.folder / 'own'}",
            f"http://127.0.0.1:{port}/?faulty",
        ],
        env=desk.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


async def test_an_ide_that_listens_is_adopted_and_goes_on(faulty: Desk) -> None:
    port, debug_port = free_port(), adopt_port(faulty)
    with by_hand(faulty, port, debug_port) as started:
        pages = f"http://127.0.0.1:{debug_port}/json/list"
        listed = 0.0
        while not isinstance(found := await asyncio.to_thread(fetch, pages), list) or (
            not any("faulty" in str(page.get("url")) for page in found)
        ):
            listed += 0.1
            assert listed < 20
            await asyncio.sleep(0.1)
        ide = await faulty.open()
        assert ide.adapter.evidence()["adopted"]
        before = await ide.turn("hello")

        # its browser is closed and opened again: the connection comes back by itself
        for child in psutil.Process(started[1].pid).children(recursive=True):
            child.kill()
        started[1].kill()
        started[1].wait()
        await ide.until("error")
        assert "is lost" in (ide.session.state().error or "")
        assert not ide.session.describe().cdp_connected
        started[1] = browser(faulty, port, debug_port)
        await ide.until("idle", seconds=30)
        assert ide.session.describe().cdp_connected
        assert (await ide.messages())[: len(before)] == before

        another = await faulty.open()  # it is in use: the next launch starts one of its own
        assert not another.adapter.evidence()["adopted"]
        await faulty.shut(another)
        await faulty.shut(ide)
        assert [process.poll() for process in started] == [None, None]
        await until(lambda: not faulty.sessions.describe(), 1)


async def test_without_playwright_a_launch_says_what_to_install(
    faulty: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "is_installed", lambda: False)
    with pytest.raises(ApiError) as refused:
        await faulty.open()
    assert (refused.value.status, "outrider[ide]" in refused.value.message) == (400, True)


async def test_an_ide_that_ends_at_once_says_what_it_said(faulty: Desk) -> None:
    file = faulty.folder / "config" / "providers" / "faulty.toml"
    file.write_text(file.read_text().replace('args = ["{port}",', 'args = ["no number",'))
    await faulty.stop()
    await faulty.start()
    with pytest.raises(ApiError) as refused:
        await faulty.open()
    assert refused.value.status == 500
    assert "invalid literal" in refused.value.message
    assert not faulty.sessions.describe()
