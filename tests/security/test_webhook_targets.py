"""Webhooks as a way into the operator's network."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.rig.errors import assert_error
from tests.security.conftest import StartTarget
from tests.security.target import MB, Target

V1 = "/api/v1"


@asynccontextmanager
async def inside(
    answer: bytes, *, without_end: bool = False
) -> AsyncIterator[tuple[str, list[int]]]:
    """Run a program of the operator's network; give its URL, and the bytes that it has sent."""
    sent = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1000)
            while True:
                writer.write(answer)
                await writer.drain()
                sent[0] += len(answer)
                if not without_end:
                    break
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", sent


async def hook(page: httpx.AsyncClient, url: str) -> str:
    made = await page.post(f"{V1}/webhooks", json={"url": url, "events": ["*"]})
    return str(made.raise_for_status().json()["id"])


async def test_an_internal_page_is_not_read_through_a_service_behind_a_proxy(
    start_target: StartTarget,
) -> None:
    """It listens on loopback, but strangers reach it."""
    async with inside(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret") as (url, sent):
        for settings in (
            {"trusted_proxies": "127.0.0.1"},
            {"public_url": "https://outrider.example.com"},
        ):
            target = await start_target(**settings)
            page = await target.login()
            refused = await page.post(f"{V1}/webhooks", json={"url": url, "events": ["*"]})
            assert_error(refused, 400)
        assert sent == [0]


async def test_a_banner_is_not_passed_on(target: Target) -> None:
    async with inside(b"SSH-2.0-OpenSSH_9.2p1 planted\r\n") as (url, _):
        page = await target.login()
        webhook = await hook(page, url)
        tested = await page.post(f"{V1}/webhooks/{webhook}/test")
        assert tested.json()["success"] is False
        history = await page.get(f"{V1}/webhooks/{webhook}/deliveries")
        assert history.json()["deliveries"][0]["error"]
        assert "planted" not in tested.text + history.text
        assert "OpenSSH" not in tested.text + history.text


async def test_100_continue_without_end(target: Target) -> None:
    """Each attempt ends after a few of them, however fast they come."""
    flood = b"HTTP/1.1 100 Continue\r\n\r\n" * 4000
    async with inside(flood, without_end=True) as (url, sent):
        page = await target.login()
        webhook = await hook(page, url)
        async with target.grows_at_most(30 * MB):
            answers = await asyncio.gather(
                *(page.post(f"{V1}/webhooks/{webhook}/test") for _ in range(20))
            )
        for answer in answers:
            assert "interim" in answer.json()["delivery"]["error"]
        # What the kernel buffers between the two, and no more.
        assert sent[0] < 20 * 8 * MB
