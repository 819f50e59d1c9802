"""What an idle service does not load: memory that most installations never use."""

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.rig.processes import Program, environment
from tests.rig.waiting import TIMEOUT

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNUSED = {
    "acp": "agents, on machines",
    "aiohttp": "webhook deliveries",
    "asyncpg": "PostgreSQL",
    "cryptography": "sessions, webhook secrets, idempotency keys",
    "jwt": "sessions",
    "mcp": "clients of /mcp",
    "outrider.cli.admin": "the operator's commands",
    "outrider.machine": "machines",
    "outrider.sdk": "clients",
    "playwright": "IDEs",
    "psutil": "machines",
    "redis": "several nodes",
    "zxcvbn": "new passwords",
}
"""Modules that are imported when they are used, and by what."""

# Runs the command line as `outrider` does, and prints at its end what it has loaded.
PROGRAM = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(list(sys.modules)), flush=True))
sys.argv[1:] = ["serve"]
from outrider.cli.main import run
run()
"""


async def loaded(data_dir: Path) -> set[str]:
    """Return the modules that a service has loaded which has served a request and stopped."""
    env = environment(data_dir, port="0")
    async with Program("-c", PROGRAM, env=env) as program:
        url = (await program.next_line()).rpartition(" ")[2]
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=TIMEOUT) as client:
            assert (await client.get("/readyz")).is_success
            assert (await client.get("/api/v1/daemons")).status_code == 401
        program.signal(signal.SIGTERM)
        modules = json.loads(await program.next_line())
        assert await program.ends() == 0
    return set(modules)


async def test_an_idle_service_loads_what_it_uses(tmp_path: Path) -> None:
    modules = await loaded(tmp_path / "data")
    assert "outrider.service.app" in modules
    assert UNUSED.keys() & modules == set()
