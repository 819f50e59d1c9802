"""The API's own description: valid, complete, and true.

Holds contract.md, "Also served": /openapi.json is OpenAPI 3.1 of all of this.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jsonschema_rs
import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from outrider.cloud.api.openapi import describe
from outrider.cloud.api.table import ENDPOINTS
from tests.cloud.test_access import ENDPOINTS as OF_THE_SPECIFICATION
from tests.service.site import Owner, Site
from tests.service.stores import PostgreSQL, SQLite, Store
from tests.service.world import World

DOCUMENT = describe(ENDPOINTS)

load_all_checks()
schema = schemathesis.openapi.from_dict(json.loads(json.dumps(DOCUMENT)))


class Bench(NamedTuple):
    """A service process with a machine that answers every command."""

    url: str
    key: str
    daemon_id: str


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sqlite_bench(
    sqlite: SQLite, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    async with benches(tmp_path_factory.mktemp("bench") / "data", sqlite) as one:
        yield one


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgresql_bench(
    postgresql: PostgreSQL, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    async with benches(tmp_path_factory.mktemp("bench") / "data", postgresql) as one:
        yield one


@pytest.fixture
def bench(store: Store, request: pytest.FixtureRequest) -> Bench:
    one: Bench = request.getfixturevalue(f"{store.name}_bench")
    return one


@asynccontextmanager
async def benches(data_dir: Path, store: Store) -> AsyncIterator[Bench]:
    world = World(data_dir, store.migrated(data_dir))
    try:
        service = await world.serve()
        await world.populate()
        await world.machine_program("answer", "quietly")
        yield Bench(service.url, world.key, world.daemon_id)
    finally:
        await world.held.aclose()


@schema.parametrize()
@settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_contradicts_the_description(case: schemathesis.Case[Any], bench: Bench) -> None:
    """Whatever is sent, the answer is one that the description tells, and no 5xx."""
    if "daemonId" in case.path_parameters:
        case.path_parameters["daemonId"] = bench.daemon_id
    if "ideId" in case.path_parameters:
        case.path_parameters["ideId"] = quote(f"{bench.daemon_id}:cli:claude-code")
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


def test_it_is_openapi_3_1() -> None:
    """Valid against the JSON Schema dialect that OpenAPI 3.1 uses, with every $ref in it."""
    assert DOCUMENT["openapi"].startswith("3.1")
    for model in DOCUMENT["components"]["schemas"].values():
        jsonschema_rs.meta.validate(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **model}
        )
    text = json.dumps(DOCUMENT)
    names = DOCUMENT["components"]["schemas"]
    for part in text.split('"$ref": "')[1:]:
        path = part.partition('"')[0]
        assert path.removeprefix("#/components/schemas/") in names


def test_it_has_every_route_of_the_specification() -> None:
    """spec.md, Endpoints: each method and path, with its scope."""
    for method, path, scope, _, _ in OF_THE_SPECIFICATION:
        full = "/api/v1" + path.format(daemon="{daemonId}", target="{ideId}")
        operation = DOCUMENT["paths"][full][method.lower()]
        assert operation["security"]
        assert f"`{scope}`" in operation["description"]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/shortcuts/{ideId}/chat", {"agentType", "limit", "after"}),
        ("/api/v1/shortcuts/{ideId}/status", {"agentType"}),
        ("/api/v1/shortcuts/{ideId}/chat/debug", {"agentType"}),
        ("/api/v1/webhooks/{webhookId}/deliveries", {"limit", "before"}),
        ("/api/v1/daemons", set()),
    ],
)
def test_it_has_the_query_parameters_that_are_taken(path: str, names: set[str]) -> None:
    """contract.md, Responses of each endpoint: no parameter that would do nothing."""
    parameters = DOCUMENT["paths"][path]["get"]["parameters"]
    assert {one["name"] for one in parameters if one["in"] == "query"} == names


def test_it_tells_that_a_page_of_another_site_may_not_log_in() -> None:
    assert "403" in DOCUMENT["paths"]["/api/v1/auth/login"]["post"]["responses"]


def test_every_operation_is_told_apart_and_told() -> None:
    operations = [
        operation for methods in DOCUMENT["paths"].values() for operation in methods.values()
    ]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    for operation in operations:
        assert operation["summary"]
        assert operation["description"]
        for parameter in operation["parameters"]:
            assert parameter["in"] != "path" or parameter["required"]


@pytest.mark.asyncio(loop_scope="session")
class TestServed:
    async def test_openapi_json(self, site: Site) -> None:
        response = await site.client().get("/openapi.json")
        assert response.json() == json.loads(json.dumps(DOCUMENT))

    async def test_docs_needs_nothing_from_elsewhere(self, site: Site) -> None:
        page = (await site.client().get("/docs")).text
        for path in DOCUMENT["paths"]:
            assert path in page
        assert "<script" not in page
        assert "http://" not in page
        assert "https://" not in page

    async def test_health(self, site: Site) -> None:
        """contract.md: /healthz the process lives, /readyz the database answers."""
        client = site.client()
        assert (await client.get("/healthz")).status_code == 200
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["database"]) == (200, "ok")

    async def test_metrics(self, owner: Owner, site: Site) -> None:
        """Routes become labels, what a stranger asks for does not."""
        await owner.machine()
        await owner.api.get("/api/v1/daemons")
        await owner.api.get("/api/v1/strange-path")
        await owner.api.request("PROPFIND", "/api/v1/daemons")
        text = (await site.client().get("/metrics")).text
        counted: Any = [line for line in text.splitlines() if "http_requests_total{" in line]
        assert any('route="/api/v1/daemons"' in line for line in counted)
        assert "strange-path" not in text
        assert "PROPFIND" not in text
        (machines,) = [line for line in text.splitlines() if line.startswith("outrider_machines ")]
        assert float(machines.split()[1]) >= 1
        (tasks,) = [line for line in text.splitlines() if line.startswith("outrider_tasks ")]
        assert float(tasks.split()[1]) >= 1


def test_the_document_names_no_path_of_this_machine() -> None:
    assert str(Path.cwd()) not in json.dumps(DOCUMENT)
