"""Requests generated from the description, to a running service with a machine that answers.

Each operation has its share here; tests/service/http/test_http_fuzzing.py also sends what does not
match the description, with every credential.
"""

import json
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.endpoint import Endpoint
from outrider.service.http.openapi import describe
from tests.rig.stores import SQLite
from tests.rig.world import World

pytestmark = pytest.mark.openapi

load_all_checks()
_SCHEMA: Final = schemathesis.openapi.from_dict(json.loads(json.dumps(describe(ENDPOINTS))))


class Bench(NamedTuple):
    """A service process with a machine that answers every command."""

    url: str
    key: str
    daemon_id: str


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def bench(sqlite: SQLite, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    data_dir = tmp_path_factory.mktemp("bench") / "data"
    world = World(data_dir, sqlite.migrated(data_dir))
    try:
        service = await world.serve()
        await world.populate()
        await world.machine_program("answer", "quietly")
        yield Bench(service.url, world.key, world.daemon_id)
    finally:
        await world.held.aclose()


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
@settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_no_request_contradicts_the_description(
    endpoint: Endpoint[Any], bench: Bench, data: st.DataObject
) -> None:
    """Whatever is sent, the response is one that the description has, and no 5xx."""
    case = data.draw(_SCHEMA[endpoint.path][endpoint.method].as_strategy())
    if "daemonId" in case.path_parameters:
        case.path_parameters["daemonId"] = bench.daemon_id
    if "ideId" in case.path_parameters:
        case.path_parameters["ideId"] = quote(f"{bench.daemon_id}:cli:claude-code")
    for name in ("wait", "timeout"):  # seconds that a request may wait for something to happen
        if isinstance(case.query.get(name), int | float):
            case.query[name] = min(case.query[name], 1)
    response = case.call(
        base_url=bench.url, headers={"Authorization": f"Bearer {bench.key}"}, timeout=10
    )
    assert response.status_code < 500, response.text
    assert response.headers["x-request-id"]
    case.validate_response(
        response,
        checks=[
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
            status_code_conformance,
        ],
    )
