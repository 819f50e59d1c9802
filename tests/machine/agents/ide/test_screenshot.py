"""What a screenshot holds."""

import base64
import struct

import pytest

from outrider.contract.commands import ChatDebug, Picture, Screenshot
from outrider.contract.debug import DebugBundle
from outrider.contract.errors import ApiError
from outrider.machine.debug.bundle import BundleCollector
from tests.machine.agents.ide.desk import Desk

pytestmark = [pytest.mark.ide, pytest.mark.timeout(300)]

NOISE = """
const canvas = document.createElement('canvas');
canvas.style = 'position: fixed; inset: 0; z-index: 9; image-rendering: pixelated';
canvas.width = innerWidth; canvas.height = innerHeight;
const context = canvas.getContext('2d'), data = context.createImageData(innerWidth, innerHeight);
for (let n = 0; n < data.data.length; n++) data.data[n] = n % 4 == 3 ? 255 : Math.random() * 256;
context.putImageData(data, 0, 0); document.body.append(canvas);
"""


def bytes_of(picture: Picture) -> bytes:
    """Return the picture's file."""
    return base64.b64decode(picture.data)


async def test_screenshots_have_the_requested_width_and_size(faulty: Desk) -> None:
    ide = await faulty.open()
    plain = await ide.session.screenshot(Screenshot())
    assert plain.format == "png"
    assert bytes_of(plain).startswith(b"\x89PNG")
    assert struct.unpack(">II", bytes_of(plain)[16:24]) == (plain.width, plain.height)
    for width in (64, 640, 2000):
        scaled = await ide.session.screenshot(Screenshot(width=width))
        assert scaled.width == width
        assert abs(scaled.height / width - plain.height / plain.width) < 0.02
    await ide.script(f"(() => {{ {NOISE} }})()")
    noisy = await ide.session.screenshot(Screenshot())
    assert noisy.format == "jpeg"
    assert bytes_of(noisy).startswith(b"\xff\xd8")
    assert (noisy.width, noisy.height) == (plain.width, plain.height)
    huge = await ide.session.screenshot(Screenshot(width=4096))
    assert len(bytes_of(huge)) <= 4_000_000


async def bundle_of(desk: Desk) -> DebugBundle:
    """Return the debug bundle of the IDE."""
    return (await BundleCollector(desk.sessions).collect(ChatDebug())).bundle


async def test_the_debug_bundle_has_a_small_picture(faulty: Desk) -> None:
    ide = await faulty.open()
    plain = (await bundle_of(faulty)).screenshot
    await ide.script(f"(() => {{ {NOISE} }})()")
    noisy = (await bundle_of(faulty)).screenshot
    for picture in (plain, noisy):
        assert picture is not None
        assert base64.b64decode(picture["data"]).startswith(b"\xff\xd8")
        assert len(picture["data"]) < 28_000
        assert picture["width"] <= 0.4 * await ide.script("innerWidth") + 1


async def test_a_minimised_window_has_no_screenshot(faulty: Desk) -> None:
    ide = await faulty.open()
    session = await ide.page.context.new_cdp_session(ide.page)
    target = await session.send("Browser.getWindowForTarget")
    bounds = {"windowId": target["windowId"], "bounds": {"windowState": "minimized"}}
    await session.send("Browser.setWindowBounds", bounds)
    with pytest.raises(ApiError) as refused:
        await ide.session.screenshot(Screenshot())
    assert (refused.value.status, "minimised" in refused.value.message) == (409, True)
    bundle = await bundle_of(faulty)
    assert bundle.screenshot is None
    assert [problem for problem in bundle.problems if "minimised" in problem]
    bounds["bounds"] = {"windowState": "normal"}
    await session.send("Browser.setWindowBounds", bounds)
    assert (await ide.session.screenshot(Screenshot())).format == "png"
