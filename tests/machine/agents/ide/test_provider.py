"""An IDE that a person has started: used as it is, found again, never ended."""

import asyncio
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from outrider.contract.errors import ApiError
from outrider.machine.agents.ide import provider
from outrider.machine.agents.ide.debugging_port import fetch
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from tests.machine.agents.ide.desk import Desk
from tests.machine.agents.machine import until
from tests.rig.waiting import eventually
from tests.servers.server import free_port

pytestmark = [pytest.mark.ide, pytest.mark.timeout(300)]


def adopt_port(desk: Desk) -> int:
    """Return the port at which an IDE is adopted."""
    file = desk.folder / "config" / "providers" / "faulty.toml"
    port = tomllib.loads(file.read_text())["adopt_port"]
    assert isinstance(port, int)
    return port


@contextmanager
def by_hand(
    desk: Desk, debug_port: int, directory: Path | None = None
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Run the IDE as a person would have started it, with `directory` open."""
    port, program = free_port(), Path(__file__).with_name("faulty_ide.py")
    url = f"http://127.0.0.1:{port}/?faulty"
    if directory is not None:
        url += f"&folder={quote(str(directory))}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(subprocess.Popen([sys.executable, str(program), str(port)]))
        started.append(browser(desk, url, debug_port))
        yield url, started
    finally:
        for process in started:
            children = psutil.Process(process.pid).children(recursive=True)
            for child in children:
                child.kill()
            process.kill()
            process.wait()


def browser(desk: Desk, url: str, debug_port: int) -> subprocess.Popen[bytes]:
    """Start the browser of it."""
    return subprocess.Popen(
        [
            "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
            f"--remote-debugging-port={debug_port}", f"--user-data-dir={desk.folder / 'own'}",
            url,
        ],
        env=desk.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


async def until_shown(debug_port: int) -> None:
    """Wait until the browser shows the IDE."""

    async def is_shown() -> bool:
        pages = await asyncio.to_thread(fetch, f"http://127.0.0.1:{debug_port}/json/list")
        return "faulty" in str(pages)

    await eventually(is_shown)


async def test_an_ide_that_listens_is_adopted_and_goes_on(faulty: Desk) -> None:
    debug_port = adopt_port(faulty)
    with by_hand(faulty, debug_port, faulty.project) as (url, started):
        await until_shown(debug_port)
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
        started[1] = browser(faulty, url, debug_port)
        await ide.until("idle")
        assert ide.session.describe().cdp_connected
        assert (await ide.messages())[: len(before)] == before

        another = await faulty.open()  # it is in use: the next launch starts one of its own
        assert not another.adapter.evidence()["adopted"]
        await faulty.shut(another)
        await faulty.shut(ide)
        assert [process.poll() for process in started] == [None, None]
        await until(lambda: not faulty.sessions.describe())


@pytest.mark.parametrize("opened", ["another", None], ids=["another directory", "unknown"])
async def test_an_ide_that_has_not_this_directory_open_is_not_adopted(
    faulty: Desk, opened: str | None
) -> None:
    directory = None if opened is None else faulty.folder / opened
    debug_port = adopt_port(faulty)
    with by_hand(faulty, debug_port, directory):
        await until_shown(debug_port)
        ide = await faulty.open()
        assert not ide.adapter.evidence()["adopted"]
        await faulty.shut(ide)


async def test_of_two_launches_at_once_one_adopts(faulty: Desk) -> None:
    debug_port = adopt_port(faulty)
    with by_hand(faulty, debug_port, faulty.project):
        await until_shown(debug_port)
        ides = await asyncio.gather(faulty.open(), faulty.open())
        assert sorted(bool(ide.adapter.evidence()["adopted"]) for ide in ides) == [False, True]
        for ide in ides:
            await faulty.shut(ide)


async def test_an_adoption_that_fails_leaves_nothing_and_can_be_tried_again(faulty: Desk) -> None:
    debug_port = adopt_port(faulty)
    with by_hand(faulty, debug_port, faulty.project):
        await until_shown(debug_port)
        with pytest.raises(ApiError) as refused:
            await faulty.open(model="none that it shows")
        assert refused.value.status == 400
        assert not faulty.sessions.describe()
        assert not list((faulty.folder / "config" / "ides").glob("session_*"))
        ide = await faulty.open()
        assert ide.adapter.evidence()["adopted"]
        await faulty.shut(ide)


async def test_which_directory_is_open_in_vs_code(faulty: Desk) -> None:
    """Real code-server is asked in test_real_ides.py; no desktop program is installed here."""
    ide = await faulty.open()
    script = (BUILT_IN_DIRECTORY / "vscode.js").read_text()

    async def opened(query: str, workspace: object = None) -> object:
        window = "undefined" if workspace is None else "{context: {configuration: () => (given)}}"
        given = f"const given = {json.dumps({'workspace': workspace})};"
        await ide.script(f"history.pushState({{}}, '', '?faulty&{query}')")
        return await ide.script(f"{given} window.vscode = {window}; ({script}).workspace()")

    host = await ide.script("location.host")
    assert await opened("folder=/a%20b/c") == "/a b/c"
    assert await opened(f"folder=vscode-remote://{host}/a%2520b") == "/a b"
    assert await opened("folder=vscode-remote://elsewhere/a") is None
    assert await opened("workspace=/a.code-workspace") is None
    assert await opened("ew=true") is None

    desktop: list[tuple[object, str | None]] = [
        ({"id": "1", "uri": {"scheme": "file", "path": "/a b"}}, "/a b"),
        ({"id": "1", "uri": {"scheme": "vscode-remote", "path": "/a b"}}, None),
        ({"id": "1", "configPath": {"scheme": "file", "path": "/a.code-workspace"}}, None),
        ({}, None),
    ]
    for workspace, directory in desktop:
        assert await opened("", workspace) == directory


async def test_without_playwright_a_launch_says_what_to_install(
    faulty: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "is_installed", lambda: False)
    with pytest.raises(ApiError) as refused:
        await faulty.open()
    assert (refused.value.status, "pip install playwright" in refused.value.message) == (400, True)


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
