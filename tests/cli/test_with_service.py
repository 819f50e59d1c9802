"""The operator's commands beside a running service, as real processes."""

from pathlib import Path

import httpx
import pytest

from tests.rig.errors import assert_error, paths
from tests.rig.machine import ScriptedMachine, hello
from tests.rig.processes import Serving, environment, outrider
from tests.rig.site import GATEWAY
from tests.rig.waiting import TIMEOUT, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_an_installation_from_nothing(tmp_path: Path) -> None:
    """Account, key, enrollment and revocation: each is seen by the running service."""
    async with Serving(tmp_path / "data") as service:
        account = await service.admin(
            "account", "create", "--email", "a@example.org", password="correct horse"
        )
        account_id = account.json()["accountId"]
        key = (await service.admin("key", "create", "--account", account_id, "--name", "k")).json()
        code = (await service.admin("enroll", "--account", account_id, "--nickname", "B")).json()
        headers = {"Authorization": f"Bearer {key['key']}"}
        async with httpx.AsyncClient(
            base_url=service.url,
            headers=headers,
            trust_env=False,
            verify=False,
            timeout=TIMEOUT,
        ) as client:
            body = {"hostname": "bench", "platform": "linux", "code": code["code"].lower()}
            enrolled = await client.post("/api/v1/auth/enroll", json=body)
            assert enrolled.status_code == 200
            assert enrolled.json()["nickname"] == "B"
            again = await client.post("/api/v1/auth/enroll", json=body)
            assert paths(again) == ["code"]

            gateway = service.url.replace("http", "ws") + GATEWAY
            async with ScriptedMachine(gateway, enrolled.json()["token"], hello()) as machine:
                (listed,) = (await client.get("/api/v1/daemons")).json()["daemons"]
                assert listed["id"] == machine.id == enrolled.json()["daemonId"]

            login = {"email": "a@example.org", "password": "correct horse"}
            assert (await client.post("/api/v1/auth/login", json=login)).status_code == 200

            (await service.admin("key", "revoke", key["id"])).json()

            async def refused() -> bool:
                return (await client.get("/api/v1/daemons")).status_code == 401

            await eventually(refused)
            assert_error(await client.get("/api/v1/daemons"), 401, "AUTH_INVALID")


@pytest.mark.parametrize("option", ["--version", "--help"])
async def test_it_says_what_it_is(tmp_path: Path, option: str) -> None:
    outcome = await outrider(option, env=environment(tmp_path / "data"))
    assert outcome.code == 0
    assert outcome.out.strip()
    assert not (tmp_path / "data").exists()
