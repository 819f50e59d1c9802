"""Screenshots and thumbnails of an IDE's window, within limits on their size."""

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from outrider.contract.commands import Picture
from outrider.machine.agents.ide.window import WindowError

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

PNG_LIMIT: Final = 1_000_000
LIMIT: Final = 4_000_000
TIMEOUT: Final = 20.0

THUMBNAIL_LIMIT: Final = 20_000
"""Bytes of a picture in a debug bundle, which has room for 28 KiB of base64."""

_QUALITIES: Final = (85, 60, 35)
_SMALLER: Final = (1.0, 0.5, 0.25)
_THUMBNAIL_SCALES: Final = (0.4, 0.3, 0.2, 0.1)
_THUMBNAIL_QUALITY: Final = 40


async def take_screenshot(page: "Page", width: int | None) -> Picture:
    """Return a picture of the page, `width` pixels wide (by default, as wide as the page).

    PNG; JPEG if that has more than 1 MB; scaled down if that has more than 4 MB.

    Raises:
        WindowError: the window is minimised, closed, or does not draw.
    """
    return await _with_session(page, lambda session: _take(session, width))


async def take_thumbnail(page: "Page") -> Picture:
    """Return a JPEG of at most 20 kB, which shows the layout but hardly any readable text.

    Raises as `take_screenshot` does.
    """
    return await _with_session(page, _take_thumbnail)


async def _with_session(
    page: "Page", take: Callable[["CDPSession"], Awaitable[Picture]]
) -> Picture:
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(TIMEOUT):
            session = await page.context.new_cdp_session(page)
            try:
                return await take(session)
            finally:
                await session.detach()
    except TimeoutError as error:
        raise WindowError("its window does not draw") from error
    except Error as error:
        raise WindowError("its window was closed") from error


async def _take(session: "CDPSession", width: int | None) -> Picture:
    size, density = await _size(session)
    scale = 1.0 if width is None else width / size[0] / density
    data = await _capture(session, size, scale, "png")
    if len(data) <= PNG_LIMIT:
        return _picture("png", *_png_size(data), data)
    # First worse, then smaller: text stays readable for longer.
    for smaller in _SMALLER:
        for quality in _QUALITIES:
            data = await _capture(session, size, scale * smaller, "jpeg", quality)
            if len(data) <= LIMIT:
                return _picture("jpeg", *_jpeg_size(data), data)
    raise WindowError("its picture has more than 4 MB: ask for a smaller `width`")


async def _take_thumbnail(session: "CDPSession") -> Picture:
    size, density = await _size(session)
    for scale in _THUMBNAIL_SCALES:
        data = await _capture(session, size, scale / density, "jpeg", _THUMBNAIL_QUALITY)
        if len(data) <= THUMBNAIL_LIMIT:
            return _picture("jpeg", *_jpeg_size(data), data)
    raise WindowError("its picture is too large for a debug bundle")


async def _size(session: "CDPSession") -> tuple[tuple[float, float], float]:
    """Return the size of the viewport in CSS pixels, and the device pixels per CSS pixel."""
    if await _is_minimised(session):
        raise WindowError("its window is minimised")
    metrics = await session.send("Page.getLayoutMetrics")
    view = metrics["cssLayoutViewport"]
    size = (view["clientWidth"], view["clientHeight"])
    if not all(size):
        raise WindowError("its window has no size")
    return size, metrics["layoutViewport"]["clientWidth"] / size[0]


async def _is_minimised(session: "CDPSession") -> bool:
    from playwright.async_api import Error

    try:
        window = await session.send("Browser.getWindowForTarget")
    except Error:
        return False  # the IDE has no windows in the browser's sense
    return bool(window["bounds"].get("windowState") == "minimized")


async def _capture(
    session: "CDPSession",
    size: tuple[float, float],
    scale: float,
    kind: Literal["png", "jpeg"],
    quality: int | None = None,
) -> bytes:
    parameters: dict[str, Any] = {
        "format": kind,
        "clip": {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": scale},
    }
    if quality is not None:
        parameters["quality"] = quality
    answer = await session.send("Page.captureScreenshot", parameters)
    return base64.b64decode(answer["data"])


def _picture(kind: Literal["png", "jpeg"], width: int, height: int, data: bytes) -> Picture:
    return Picture(
        format=kind, width=width, height=height, data=base64.b64encode(data).decode("ascii")
    )


def _png_size(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the JPEG's frame header (ITU-T T.81, B.2.2)."""
    at = 2
    while at + 9 <= len(data):
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2 : at + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + length
    raise WindowError("its picture cannot be read")
