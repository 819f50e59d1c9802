"""A service whose disk is full: it says so, changes nothing, and goes on reading.

The disk of the process is bounded by RLIMIT_FSIZE: its files cannot grow any more, until the test
lifts the bound.
"""

import os
import resource
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import pytest_asyncio

from outrider.service.settings import Settings
from tests.rig.errors import assert_error
from tests.rig.people import V1, dashboard, person
from tests.rig.processes import Serving
from tests.rig.samples import session
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.faults]


@contextmanager
def full_disk(service: Serving) -> Iterator[None]:
    """Have nothing more written to the service's files while the block runs."""
    process = psutil.Process(service.process.pid)
    _, hard = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):  # the test has ended the service
            process.rlimit(resource.RLIMIT_FSIZE, (hard, hard))


class Scene:
    """A running service with an account and a machine."""

    def __init__(self, service: Serving, site: Site, owner: Owner) -> None:
        self.service = service
        self.site = site
        self.owner = owner

    async def ready(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of /readyz."""
        answer = await self.site.client().get("/readyz")
        return answer.status_code, answer.json()

    async def change(self) -> httpx.Response:
        """Make a request that changes something, though not in the database."""
        machine = (await self.owner.api.get(f"{V1}/daemons")).json()["daemons"][0]["id"]
        path = f"{V1}/daemons/{machine}/terminal"
        return await self.owner.api.post(path, json={"command": "true"})

    async def cannot_audit(self) -> bool:
        """Return whether the service has found that it cannot write its audit."""
        await self.change()
        return bool((await self.ready())[1]["audit"] != "ok")


@asynccontextmanager
async def running(data_dir: Path, log: Path, audit_required: str = "true") -> AsyncIterator[Scene]:
    """Run a service, which logs to the file `log`."""
    service = Serving(data_dir, audit_required=audit_required)
    service.log = log
    site = Site(Settings(data_dir=data_dir))
    async with service:
        site.url = service.url
        try:
            owner = await person(site)
            (await owner.machine(session())).obliges()
            yield Scene(service, site, owner)
        finally:
            await site.close()


@pytest_asyncio.fixture(loop_scope="session")
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """The setting `OUTRIDER_AUDIT_REQUIRED` is the fixture's parameter."""
    chosen = getattr(request, "param", "true")
    async with running(tmp_path / "data", tmp_path / "log", chosen) as scene:
        yield scene


async def test_what_cannot_be_recorded_is_not_done(scene: Scene) -> None:
    page = await dashboard(scene.owner)
    assert (await scene.change()).status_code == 200
    assert (await scene.ready()) == (200, {"status": "ok", "database": "ok", "audit": "ok"})
    machine = (await scene.owner.api.get(f"{V1}/daemons")).json()["daemons"][0]["id"]
    target = f"{machine}:cli:claude-code"
    with full_disk(scene.service):
        await eventually(scene.cannot_audit)
        refused = await scene.change()
        assert "audit" in assert_error(refused, 503)["error"]
        assert int(refused.headers["retry-after"]) > 0
        status, parts = await scene.ready()
        assert status == 503
        assert parts["database"] == "ok"
        assert parts["audit"].startswith("cannot be written: ")
        for client, path in (
            (scene.owner.api, f"{V1}/daemons"),
            (scene.owner.api, f"{V1}/shortcuts/{target}/chat"),
            (page, f"{V1}/account"),
            (page, f"{V1}/audit"),
            (page, f"{V1}/account/sessions"),
            (page, f"{V1}/webhooks"),
            (scene.site.client(), "/healthz"),
            (scene.site.client(), "/metrics"),
        ):
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
        body = {"type": "read_chat", "payload": {"target": target}}
        for headers in (None, {"Idempotency-Key": "one"}):
            command = f"{V1}/daemons/{machine}/command"
            read = await scene.owner.api.post(command, json=body, headers=headers)
            assert read.status_code == 200, "a POST that only reads"

    async def works_again() -> bool:
        return (await scene.change()).status_code == 200

    await eventually(works_again)
    assert (await scene.ready())[0] == 200
    records = (await page.get(f"{V1}/audit", params={"limit": 1000})).json()["records"]
    assert {record["outcome"] for record in records} == {200, 503}, "what waited is written"


@pytest.mark.parametrize("scene", ["false"], indirect=True)
async def test_an_operator_may_prefer_to_go_on(scene: Scene) -> None:
    with full_disk(scene.service):
        await eventually(scene.cannot_audit)
        assert (await scene.change()).status_code == 200
        status, parts = await scene.ready()
        assert (status, parts["status"]) == (200, "ok")
        assert parts["audit"].startswith("cannot be written: ")


async def test_a_stop_ends_well(tmp_path: Path) -> None:
    """Its log is not on the full disk: Python ends with 120 where it cannot write its last line."""
    async with running(tmp_path / "data", Path(os.devnull)) as scene:
        with full_disk(scene.service):
            await eventually(scene.cannot_audit)
            scene.service.signal(signal.SIGTERM)
            assert await scene.service.ends() == 0


async def test_reading_goes_on_after_a_start_on_a_full_disk(scene: Scene) -> None:
    """No call is set aside yet then, and none can be."""
    account = await person(scene.site)
    with full_disk(scene.service):
        for _ in range(3):
            assert (await account.api.get(f"{V1}/daemons")).status_code == 200
