"""Fixtures: a page in Chromium on the origin of a running `outrider up`, logged in."""

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.rig.browser import log_in, page_at
from tests.system.test_terminal import SHELL
from tests.system.up import Up

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / ".cache"


@pytest.fixture(scope="session")
def xterm() -> Path:
    """The folder of xterm.js, which is installed if need be."""
    if shutil.which("npm") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the page needs npm on PATH")
        pytest.skip("the page needs npm on PATH")
    subprocess.run(["sh", str(HERE / "install.sh"), str(CACHE)], check=True)
    return CACHE / "browser" / "node_modules" / "@xterm" / "xterm"


@pytest.fixture
def env(env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment with shells as agents, beside Claude Code."""
    providers = tmp_path / "config" / "providers"
    providers.mkdir(parents=True)
    (providers / "shell.toml").write_text(SHELL)
    return {name: value for name, value in env.items() if name != "NO_COLOR"}


@pytest.fixture
async def site(env: dict[str, str], xterm: Path) -> AsyncIterator[tuple[Up, "Page"]]:
    """`outrider up`, and an empty page of it."""
    files = {
        "/test/terminal.html": HERE / "terminal.html",
        "/test/xterm.js": xterm / "lib" / "xterm.js",
        "/test/xterm.css": xterm / "css" / "xterm.css",
    }
    async with Up("-m", "outrider", "up", env=env) as up:
        greeting = await up.greeting()
        login = next(line.split() for line in greeting.splitlines() if line.startswith("Login"))
        async with page_at(up.url) as page:
            await page.set_viewport_size({"width": 1400, "height": 1000})

            async def serve(route: "Route") -> None:
                await route.fulfill(path=files[urlsplit(route.request.url).path])

            # A page that the test answers for has no address: Chromium takes it for a public one.
            await page.context.grant_permissions(["local-network-access"], origin=up.url)
            await page.route(f"{up.url}/test/*", serve)
            await log_in(page.context, up.url, login[1], login[-1])
            yield up, page
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
