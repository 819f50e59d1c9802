"""A real Chromium, with a page of its own for each test."""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pytest

from tests.rig.people import PAGE_SECRET

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, StorageState


def chromium_program() -> Path:
    """Return Debian's Chromium; skip the test without it, or without Playwright."""
    pytest.importorskip("playwright.async_api")
    found = shutil.which("chromium")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("this test needs chromium on PATH")
        pytest.skip("this test needs chromium on PATH (apt-get install chromium)")
    return Path(found)


_WITHOUT_GPU: Final = ("--disable-gpu", "--disable-software-rasterizer")
"""Debian starts Chromium with options for a GPU. Where there is none, it is emulated, which took
half of the processor time of the tests of the dashboard."""


@asynccontextmanager
async def chromium() -> AsyncIterator["Browser"]:
    """Start a Chromium that ends with the context."""
    program = chromium_program()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=list(_WITHOUT_GPU))
        try:
            yield browser
        finally:
            await browser.close()


def page_storage(url: str) -> "StorageState":
    """Return the storage of a browser whose pages of a service have `PAGE_SECRET`.

    A test may then log it in by a request instead of the form.
    """
    parts = urlsplit(url)
    name = f"outrider:page-secret:{parts.path}/"
    origin = f"{parts.scheme}://{parts.netloc}"
    return {
        "cookies": [],
        "origins": [{"origin": origin, "localStorage": [{"name": name, "value": PAGE_SECRET}]}],
    }


async def log_in(context: "BrowserContext", url: str, email: str, password: str) -> None:
    """Log the pages of a context with `page_storage` in to a service, by a request."""
    answer = await context.request.post(
        f"{url}/api/v1/auth/login",
        data={"email": email, "password": password},
        headers={"X-Outrider-Page-Secret": PAGE_SECRET},
    )
    assert answer.ok, await answer.text()


@asynccontextmanager
async def page_at(url: str) -> AsyncIterator["Page"]:
    """Open a page in a Chromium that ends with the context; `url` is the base of its addresses."""
    async with chromium() as browser:
        context = await browser.new_context(base_url=url, storage_state=page_storage(url))
        yield await context.new_page()
