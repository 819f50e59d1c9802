"""Makes the pictures in docs/images/dashboard: each page on a phone and at a desk, light and dark,
and the kit (every component in every state) in three widths.

    make screenshots

A real `outrider up` with the demo agent, in states that one sees every day. Chromium itself encodes
the pictures as WebP.
"""

import asyncio
import base64
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import httpx
from playwright.async_api import Browser

from tests.dashboard.browser_client import (
    PHONE,
    SCHEMES,
    WIDTHS,
    BrowserClient,
    Scheme,
    open_browser,
)
from tests.dashboard.conftest import ROOT
from tests.dashboard.home import Home, at_home
from tests.rig.browser import chromium
from tests.rig.waiting import eventually
from tests.service.webhooks.receiver import Receiver, one_after_another, receiving, response

FOLDER: Final = ROOT / "docs" / "images" / "dashboard"
QUALITY: Final = 0.86
KIT_WIDTHS: Final = (390, 820, 1440)

_ENCODE: Final = """async ([data, quality]) => {
    const image = new Image();
    image.src = "data:image/png;base64," + data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext("2d").drawImage(image, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/webp", quality });
    const bytes = new Uint8Array(await blob.arrayBuffer());
    let text = "";
    for (const byte of bytes) text += String.fromCharCode(byte);
    return btoa(text);
}"""


async def _project(folder: Path, name: str) -> Path:
    """Make a git repository with a commit and a change."""
    project = folder / name
    project.mkdir()
    git = ["git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    (project / "parser.py").write_text(_BEFORE)
    (project / "README.md").write_text(f"# {name}\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "Begin"]):
        await asyncio.to_thread(subprocess.run, [*git, *command], check=True)
    (project / "parser.py").write_text(_AFTER)
    return project


_BEFORE: Final = """\
def parse(line):
    name, value = line.split("=")
    return name, value
"""
_AFTER: Final = """\
def parse(line: str) -> tuple[str, str]:
    name, separator, value = line.partition("=")
    if not separator:
        raise ValueError(f"no value in {line!r}")
    return name.strip(), value.strip()
"""


async def _furnish(home: Home, receiver: Receiver) -> dict[str, str]:
    """Launch agents in each state; return the routes, by the names of their pictures."""
    call = home.up.call
    webhook = await _webhooks(home, receiver)
    parser = await home.launch("Make the parser strict", await _project(home.folder, "parser"))
    for message in ("think", "read"):
        await home.say(parser, message)
    await home.say(parser, "edit", "waiting_approval")
    notes = await home.launch("Collect the release notes", await _project(home.folder, "website"))
    await home.say(notes, "fail", "error")
    await home.launch("Which tests are slow?", await _project(home.folder, "billing"))
    stream = await home.launch("Explain the new cache", await _project(home.folder, "cache"))
    (machine,) = (await call("GET", "/daemons"))["daemons"]
    ended = await _history(home, machine["id"])
    await call("POST", f"/shortcuts/{stream}/chat", {"message": "stream 600"})
    for name in ("build", "logs"):
        body = {"name": name, "command": "true"}
        await call("POST", f"/daemons/{machine['id']}/terminal", body)
    device = {"hostname": "build-server", "platform": "linux"}
    code = (await call("POST", "/auth/device", device))["userCode"]
    return {
        "sessions": "/",
        "inbox": "/inbox",
        "machines": "/machines",
        "machine": f"/machines/{machine['id']}",
        "session": f"/sessions/{parser}",
        "changes": f"/sessions/{parser}?tab=changes",
        "files": f"/sessions/{parser}?tab=files",
        "streaming": f"/sessions/{stream}",
        "ended": f"/sessions/{ended}",
        "history": "/history",
        "webhooks": "/webhooks",
        "webhook": f"/webhooks/{webhook}",
        "device": f"/device?code={code}",
        "account": "/account",
    }


async def _webhooks(home: Home, receiver: Receiver) -> str:
    """Create a webhook whose receiver fails once, and a paused one; return the first one's id."""
    receiver.respond_with(
        one_after_another(*[response(200)] * 4, response(503, "The queue is full"), response(200))
    )
    events = ["agent:generating_completed", "agent:waiting_approval", "agent:error"]
    other = {"url": "https://chat.example.org/hooks/agents", "events": ["*"]}
    async with httpx.AsyncClient(base_url=f"{home.up.url}/api/v1") as client:  # a recent login
        login = {"email": home.email, "password": home.password}
        token = (await client.post("/auth/login", json=login)).json()["token"]
        client.headers["Authorization"] = f"Bearer {token}"
        body = {"url": receiver.url, "events": events}
        webhook: str = (await client.post("/webhooks", json=body)).json()["id"]
        paused = (await client.post("/webhooks", json=other)).json()["id"]
        await client.patch(f"/webhooks/{paused}", json={"active": False})
    return webhook


async def _history(home: Home, machine: str) -> str:
    """Launch sessions that end: one crashes, the others are stopped; return the last one's id."""
    call = home.up.call
    crashed = await home.launch("Find the memory leak", await _project(home.folder, "gateway"))
    await call("POST", f"/shortcuts/{crashed}/chat", {"message": "crash"})
    target = ""
    for title, name in (("Translate the manual", "manual"), ("Update the lock file", "tools")):
        target = await home.launch(title, await _project(home.folder, name))
        stop = {"type": "demo", "sessionId": target.rpartition(":")[2]}
        await call("POST", f"/shortcuts/{machine}/stop", stop)

    async def all_have_ended() -> bool:
        return len((await call("GET", "/sessions?state=ended"))["sessions"]) == 3

    await eventually(all_have_ended)
    return target


async def _take(browsing: BrowserClient, encoder: Any, name: str, path: str) -> None:
    await browsing.page.goto(path)
    await browsing.page.wait_for_load_state("load")
    await browsing.page.locator("h1").first.wait_for()
    await browsing.page.wait_for_timeout(700)  # what is loaded when it is opened
    await browsing.page.locator(".animate-pulse").first.wait_for(state="detached")
    await _save(encoder, name, await browsing.page.screenshot())


async def _save(encoder: Any, name: str, picture: bytes) -> None:
    data = base64.b64encode(picture).decode()
    encoded: str = await encoder.evaluate(_ENCODE, [data, QUALITY])
    (FOLDER / f"{name}.webp").write_bytes(base64.b64decode(encoded))


async def _take_all(browser: Browser, home: Home, routes: dict[str, str]) -> None:
    encoder = await browser.new_page()
    for width in WIDTHS:
        for scheme in SCHEMES:
            ending = f"{'phone' if width == PHONE else 'desk'}-{scheme}"
            async with open_browser(browser, home.up.url, width, _scheme(scheme)) as browsing:
                await _take(browsing, encoder, f"login-{ending}", "/login")
                await browsing.log_in(home.email, home.password)
                for name, path in routes.items():
                    await _take(browsing, encoder, f"{name}-{ending}", path)


def _scheme(name: str) -> Scheme:
    return "dark" if name == "dark" else "light"


@contextmanager
def _kit() -> Iterator[str]:
    """Build the kit, which is no part of the dashboard, and serve it; give its address."""
    command = [str(ROOT / "scripts" / "in-web"), "npm", "run", "--silent", "build-kit"]
    subprocess.run(command, check=True)
    handler = partial(_QuietHandler, directory=str(ROOT / ".cache" / "kit"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/kit.html"
        finally:
            server.shutdown()
            serving.join()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Leave the requests out of the output."""


async def _take_kit(browser: Browser, url: str) -> None:
    encoder = await browser.new_page()
    for width in KIT_WIDTHS:
        for scheme in SCHEMES:
            page = await browser.new_page(
                viewport={"width": width, "height": 900},
                color_scheme=_scheme(scheme),
                reduced_motion="reduce",
                locale="en-GB",
                timezone_id="UTC",
            )
            await page.goto(url, wait_until="networkidle")
            await page.wait_for_timeout(700)  # what is loaded when it is drawn, such as diffs
            await _save(encoder, f"kit-{width}-{scheme}", await page.screenshot(full_page=True))
            await page.close()


async def main() -> None:
    """Make all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    async with chromium() as browser:
        with _kit() as url:
            await _take_kit(browser, url)
    with tempfile.TemporaryDirectory() as folder:
        async with chromium() as browser, receiving() as receiver, at_home(Path(folder)) as home:
            await _take_all(browser, home, await _furnish(home, receiver))


if __name__ == "__main__":
    asyncio.run(main())
