"""A request on one node, its machine on another: one trace, carried over Redis."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.conftest import settings
from tests.rig.samples import session
from tests.rig.site import Site
from tests.rig.spans import TRACE_ID, Collector, collecting, export_to, exporting
from tests.rig.stores import PostgreSQL
from tests.system.nodes.pair import Pair

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    async with collecting() as running:
        export_to(running.url, monkeypatch)
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def traced_pair(
    tmp_path_factory: pytest.TempPathFactory, postgresql: PostgreSQL, collector: Collector
) -> AsyncIterator[Pair]:
    directory = tmp_path_factory.mktemp("traced")
    shared = settings(directory / "one", postgresql, secret_key="k" * 32)
    async with exporting("here") as here, exporting("there") as there:
        sites = (
            Site(shared, tracing=here),
            Site(shared.model_copy(update={"data_dir": directory / "two"}), tracing=there),
        )
        for site in sites:
            await site.start()
        yield await Pair.of(*sites)
        for site in sites:
            await site.close()


async def test_the_relay_is_part_of_the_trace(traced_pair: Pair, collector: Collector) -> None:
    machine = await traced_pair.machine_there(session(id="s1"))
    headers = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
    asked = asyncio.create_task(traced_pair.here.get(traced_pair.status, headers=headers))
    taken = await machine.takes("agent_status")
    await machine.answers(taken)
    assert (await asked).status_code == 200
    name = "GET /api/v1/shortcuts/{ideId}/status"
    names = (name, "command agent_status", "relay agent_status")
    spans = await collector.trace(TRACE_ID, *names)
    request, command, relay = (spans[name] for name in names)
    assert (request.service, command.service, relay.service) == ("here", "here", "there")
    assert (command.parent, relay.parent, relay.kind) == (request.id, command.id, "consumer")
    assert taken.traceparent == f"00-{TRACE_ID}-{relay.id}-01"
