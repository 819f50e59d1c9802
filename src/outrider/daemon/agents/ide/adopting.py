"""Finds an IDE that a person has started with its debugging port open."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any, Final

from outrider.daemon.agents.ide.loopback import fetch
from outrider.daemon.agents.ide.window import Window, WindowError

_OPEN_TIMEOUT: Final = 10.0
_POLL: Final = 0.1


async def has_page(endpoint: str, pages: str) -> bool:
    """Tell whether a page that matches `pages` is shown at this debugging port."""
    found = await asyncio.to_thread(fetch, f"{endpoint}/json/list")
    return isinstance(found, list) and any(_is_page(page, pages) for page in found)


async def workspace(window: Window) -> str | None:
    """Return the directory that is open in the window, None where that cannot be told."""
    window.start()
    try:
        deadline = time.monotonic() + _OPEN_TIMEOUT
        while window.state != "there":
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(_POLL)
        found = await window.ask("workspace")
    except WindowError:
        return None
    finally:
        await window.stop()
    return _expanded(found) if isinstance(found, str) and found else None


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


def _is_page(page: Any, pattern: str) -> bool:
    return (
        isinstance(page, dict)
        and page.get("type") == "page"
        and re.search(pattern, str(page.get("url"))) is not None
    )
