"""Live terminals in a real browser with xterm.js: bash, htop and Claude Code."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.waiting import TIMEOUT
from tests.system.up import Up

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.ide, pytest.mark.timeout(300)]

PASTE = "".join(f"{number:5} {'Grüße, 漢字! ' * 6}\n" for number in range(1000))
"""A text of more than 100 KB."""


class Terminal:
    """A terminal on a page, and the person who looks at it."""

    def __init__(self, page: "Page") -> None:
        self.page = page

    async def lines(self) -> list[str]:
        """Return the lines of the screen."""
        lines: list[str] = await self.page.evaluate("lines()")
        return lines

    async def shows(self, text: str) -> dict[str, Any]:
        """Wait until the screen shows a text; return where it is, and its colour."""
        handle = await self.page.wait_for_function(
            "text => find(text)", arg=text, polling=50, timeout=TIMEOUT * 1000
        )
        found = await handle.json_value()
        assert isinstance(found, dict)
        return found

    async def type(self, text: str) -> None:
        """Press the keys of a line, and Enter."""
        await self.page.keyboard.type(text)
        await self.page.keyboard.press("Enter")

    async def click(self, text: str) -> None:
        """Click the first character of a text."""
        found = await self.shows(text)
        await self.page.mouse.click(found["x"], found["y"])

    async def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        await self.page.evaluate("([c, r]) => term.resize(c, r)", [columns, rows])

    async def paste(self, text: str) -> None:
        """Paste a text."""
        await self.page.evaluate("text => paste(text)", text)


async def opened(up: Up, page: "Page", kind: str, directory: Path) -> Terminal:
    """Launch an agent, and open its terminal on the page."""
    (machine,) = (await up.call("GET", "/daemons"))["daemons"]
    body = {"type": kind, "dir": str(directory)}
    launched = await up.call("POST", f"/shortcuts/{machine['id']}/launch", body)
    path = f"/api/v1/shortcuts/{launched['sessionTargetId']}/terminal"
    await page.goto(f"/test/terminal.html#{path}")
    await page.locator(".xterm-helper-textarea").focus()
    return Terminal(page)


async def test_a_shell_and_htop(site: tuple[Up, "Page"], home: Path, tmp_path: Path) -> None:
    if shutil.which("htop") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("this test needs htop on PATH")
        pytest.skip("this test needs htop on PATH")
    up, page = site
    terminal = await opened(up, page, "shell", home)
    await terminal.shows("sh>")

    await terminal.type(r"printf '\u00fc\u6f22\u5b57\U1F389\n'")
    await terminal.shows("ü漢字🎉")
    await terminal.type("printf '<%s>' 'größer 漢字 🎉' >typed; printf 'wri%s\\n' tten")
    await terminal.shows("written")
    assert (home / "typed").read_text() == "<größer 漢字 🎉>"

    await terminal.type(r"printf '\e[31mre%s\e[0m \e[38;2;1;2;3mrg%s\e[0m\n' dd bb")
    red, rgb = await terminal.shows("redd"), await terminal.shows("rgbb")
    assert (red["mode"], red["color"]) == ("palette", 1)
    assert (rgb["mode"], rgb["color"]) == ("rgb", 0x010203)

    await terminal.resize(132, 43)
    await terminal.type("stty size | tr ' ' x")
    await terminal.shows("43x132")

    await terminal.type("printf 'rea%s\\n' dy; cat >pasted; printf 'sto%s\\n' red")
    await terminal.shows("ready")
    await terminal.paste(PASTE)
    await terminal.shows(PASTE.splitlines()[-1][:40])
    await terminal.page.keyboard.press("Control+d")
    await terminal.shows("stored")
    assert (home / "pasted").read_text() == PASTE

    await terminal.type("clear; htop; printf 'quit%s\\n' ted")
    await terminal.shows("F10Quit")
    assert (await terminal.shows("Load average"))["mode"] != "default"
    await terminal.page.screenshot(path=tmp_path / "htop.png")
    await terminal.click("F1Help")
    await terminal.shows("Press any key to return.")
    await terminal.page.keyboard.press("Escape")
    await terminal.click("Quit")
    await terminal.shows("quitted")


async def test_claude_code(site: tuple[Up, "Page"], home: Path, tmp_path: Path) -> None:
    up, page = site
    terminal = await opened(up, page, "claude-code", home / "project")
    await terminal.shows("Claude Code v")
    await terminal.type("hello from the bröwser 漢字")
    await terminal.shows("You said: hello from the bröwser 漢字")
    assert (await terminal.shows("╭"))["mode"] != "default"

    await terminal.resize(120, 40)

    async def is_redrawn() -> bool:
        return any(len(line.rstrip()) == 120 for line in await terminal.lines())

    await up.until(is_redrawn)
    await terminal.paste(PASTE)
    await terminal.shows("[Pasted text #1")
    await terminal.page.screenshot(path=tmp_path / "claude-code.png")
    await terminal.page.keyboard.press("Enter")
    await terminal.shows("You said:")
