"""What an agent asks for outside its directory reaches the account's audit: all parts real."""

import signal
from pathlib import Path

import httpx
import pytest

from tests.acp.conftest import provider_file
from tests.service.processes import environment
from tests.system.up import Up


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine whose only agent of note is a scripted one."""
    (tmp_path / "home" / "project").mkdir(parents=True)
    provider_file(tmp_path)
    return environment(tmp_path / "data", port="0") | {"HOME": str(tmp_path / "home")}


async def login(up: Up, greeting: str) -> httpx.AsyncClient:
    """Return a client with a session of the user that `outrider up` has made."""
    line = next(line for line in greeting.splitlines() if line.startswith("Login"))
    email, password = line.split()[1], line.split()[-1]
    body = {"email": email, "password": password}
    token = (await up.call("POST", "/auth/login", body))["token"]
    return httpx.AsyncClient(base_url=up.url, headers={"Authorization": f"Bearer {token}"})


async def test_a_file_outside(env: dict[str, str], tmp_path: Path) -> None:
    async with Up("-m", "outrider", "up", env=env) as up:
        greeting = await up.greeting()
        (machine,) = (await up.call("GET", "/daemons"))["daemons"]
        body = {"type": "scripted", "dir": str(tmp_path / "home" / "project")}
        launched = await up.call("POST", f"/shortcuts/{machine['id']}/launch", body)
        message = {"message": "fs write /etc/hosts"}
        await up.call("POST", f"/shortcuts/{launched['sessionTargetId']}/chat", message)
        async with await login(up, greeting) as page:

            async def refusals() -> list[dict[str, object]]:
                records = (await page.get("/api/v1/audit")).raise_for_status().json()["records"]
                return [r for r in records if r["action"] == "agent.fs_write_refused"]

            (record,) = await up.until(refusals)
        assert record["principal"] == machine["id"]
        assert record["target"] == f"{launched['sessionId']} /etc/hosts"
        assert record["outcome"] == 403
        up.signal(signal.SIGINT)
        assert await up.ends(within=10) == 0
