"""The receivers in docs/ work: both believe a real delivery, and nothing else."""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest

from outrider.contract import signatures
from tests.rig.processes import PROCESS_TIMEOUT
from tests.rig.waiting import TIMEOUT, eventually
from tests.servers.server import free_port
from tests.service.webhooks.delivery_node import DeliveryNode

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples" / "webhooks"
RECEIVERS = {
    "python": [sys.executable, str(EXAMPLES / "receiver.py")],
    "javascript": ["node", str(EXAMPLES / "receiver.mjs")],
}


@asynccontextmanager
async def running(
    command: list[str], secret: str
) -> AsyncIterator[tuple[str, asyncio.StreamReader]]:
    """Run a receiver; give its URL and what it prints."""
    port = free_port()
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        str(port),
        env={**kept, "SECRET": secret},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:

        def listens() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        await eventually(listens, PROCESS_TIMEOUT)
        yield f"http://127.0.0.1:{port}/", process.stdout
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def line(output: asyncio.StreamReader) -> str:
    async with asyncio.timeout(TIMEOUT):
        return (await output.readline()).decode()


@pytest.mark.parametrize("language", RECEIVERS)
async def test_a_receiver(node: DeliveryNode, language: str) -> None:
    """What it must do: believe, refuse, and drop what comes again."""
    node.clock.now = time.time()
    secret = "whsec_of_the_receiver"
    async with running(RECEIVERS[language], secret) as (url, output):
        outcome = await node.sender.attempt(
            url=url,
            secrets=["whsec_new", secret],
            event="agent:error",
            delivery="dlv_1",
            number=1,
            body='{"id":"evt_1","event":"agent:error","payload":{"chatTitle":"Grüße"}}'.encode(),
        )
        assert (outcome.status, outcome.delivered) == (204, True)
        said = await line(output)
        assert said.startswith("agent:error ")
        assert "Grüße" in said

        async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as client:

            async def status(body: bytes, age: float = 0, by: str = secret) -> int:
                t = int((time.time() - age) * 1000)
                header = {signatures.SIGNATURE_HEADER: signatures.header([by], t, body)}
                return (await client.post(url, content=body, headers=header)).status_code

            again = b'{"id":"evt_1","event":"agent:error","payload":{}}'
            new = b'{"id":"evt_2","event":"agent:error","payload":{}}'
            assert await status(again) == 204
            assert await status(new, by="whsec_other") == 400
            assert await status(new, age=301) == 400
            assert (await client.post(url, content=new)).status_code == 400
            header = {signatures.SIGNATURE_HEADER: "t=1,v1=zz"}
            assert (await client.post(url, content=new, headers=header)).status_code == 400
            assert await status(new) == 204
        assert (await line(output)).startswith("agent:error ")
