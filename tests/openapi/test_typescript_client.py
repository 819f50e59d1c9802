"""The package of clients/typescript: built, installed, and used in Node against the service."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outrider.sdk import AsyncMachine
from tests.openapi.conftest import Tools
from tests.rig.processes import PROCESS_TIMEOUT
from tests.sdk.conftest import Workplace, client, machine, workplace  # noqa: F401  # fixtures

pytestmark = [pytest.mark.openapi, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "clients" / "typescript"
EXAMPLES = re.findall(
    r"^```js\n(.*?)^```$", (ROOT / "docs" / "typescript.md").read_text(), re.MULTILINE | re.DOTALL
)


@pytest_asyncio.fixture(loop_scope="session")
async def program(tools: Tools) -> Path:
    """A directory where the package is installed."""
    installed = tools.directory / "node_modules" / "outrider-client"
    installed.mkdir(parents=True)
    shutil.copy(PACKAGE / "package.json", installed)
    # In a thread: the service is in this process, and would not answer its machine meanwhile.
    await asyncio.to_thread(tools.run, "tsc", "--project", PACKAGE, "--outDir", installed / "dist")
    return tools.directory


@pytest_asyncio.fixture(loop_scope="session")
async def turns(machine: AsyncMachine, workplace: Workplace) -> AsyncIterator[None]:  # noqa: F811
    """An agent that finishes one turn after the other."""
    agent = await machine.launch("demo", dir=str(workplace.project))

    async def work() -> None:
        while True:
            await agent.ask("Hello")

    working = asyncio.create_task(work(), name="turns")
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait({working})
        await agent.stop()


async def node(program: Path, workplace: Workplace, *arguments: str | Path) -> str:  # noqa: F811
    """Run a program in Node and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        "node", *arguments,
        cwd=program,
        env={
            "PATH": os.environ["PATH"],
            "OUTRIDER_URL": workplace.site.url,
            "OUTRIDER_API_KEY": workplace.key,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PROCESS_TIMEOUT):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_the_example(program: Path, workplace: Workplace) -> None:  # noqa: F811
    shutil.copy(PACKAGE / "examples" / "demo.mjs", program)
    printed = (await node(program, workplace, "demo.mjs", workplace.project)).splitlines()
    assert printed[0] == "machine: laptop"
    assert "You said: Hello from Node" in printed
    for event in ("agent:generating_started", "agent:generating_completed"):
        assert printed.count(f"event: {event}") == 1


@pytest.mark.parametrize("example", EXAMPLES)
async def test_examples_of_the_page(
    example: str,
    program: Path,
    workplace: Workplace,  # noqa: F811
    turns: None,
) -> None:
    assert await node(program, workplace, "--input-type=module", "--eval", example)


async def test_a_key_that_is_not_valid(program: Path, workplace: Workplace) -> None:  # noqa: F811
    code = """
    import { ApiError, createClient, followEvents, UnreachableError } from "outrider-client";
    const headers = { Authorization: "Bearer ork_x" };
    const options = { baseUrl: process.env.OUTRIDER_URL, headers };
    const failures = [
      createClient(options).get("/api/v1/daemons"),
      followEvents(options).next(),
      createClient({ ...options, baseUrl: "http://127.0.0.1:9" }).get("/api/v1/daemons"),
    ];
    for (const { reason } of await Promise.allSettled(failures)) {
      console.log(reason instanceof ApiError, reason instanceof UnreachableError, reason.status);
    }
    """
    printed = await node(program, workplace, "--input-type=module", "--eval", code)
    assert printed.splitlines() == ["true false 401", "true false 401", "false true undefined"]
