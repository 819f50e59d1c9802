"""The API's own description: valid, complete, and true.

Holds docs/api.md: /openapi.json is an OpenAPI 3.1 document of every endpoint.
"""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from outrider.contract.commands import COMMANDS, PUBLIC_COMMANDS, CommandType, ResolveAction
from outrider.contract.events import EventName
from outrider.service.accounts.principal import Scope
from outrider.service.accounts.quota import PLANS
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.openapi import describe
from outrider.service.http.request_body import decode_body
from tests.rig.site import Owner, Site
from tests.service.accounts.test_authentication import ENDPOINTS as WITH_SCOPES

DOCUMENT = describe(ENDPOINTS)


def everywhere(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a document."""
    if isinstance(part, dict):
        yield part
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        yield from everywhere(inner)


def operations() -> list[dict[str, Any]]:
    return [item for methods in DOCUMENT["paths"].values() for item in methods.values()]


def conforms(value: Any, schema: dict[str, Any]) -> None:
    """Check a value against a schema of the document."""
    whole = {"components": DOCUMENT["components"], **schema}
    jsonschema_rs.Draft202012Validator(whole).validate(value)


def examples_of(content: dict[str, Any]) -> list[Any]:
    """Return the examples of a body."""
    several = [example["value"] for example in content.get("examples", {}).values()]
    return several or [content["example"]]


def test_the_document_is_openapi_3_1() -> None:
    """Valid against the JSON Schema dialect that OpenAPI 3.1 uses, every $ref leads somewhere.

    And nothing is described that is not used.
    """
    assert DOCUMENT["openapi"].startswith("3.1")
    components = DOCUMENT["components"]
    for model in components["schemas"].values():
        jsonschema_rs.meta.validate(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **model}
        )
    used = {part["$ref"] for part in everywhere(DOCUMENT) if "$ref" in part}
    defined = {
        f"#/components/{kind}/{name}"
        for kind, parts in components.items()
        if kind != "securitySchemes"
        for name in parts
    }
    assert used == defined


def test_everything_has_a_description_and_valid_examples() -> None:
    for model, schema in DOCUMENT["components"]["schemas"].items():
        assert schema["description"], model
        for name, field in schema.get("properties", {}).items():
            assert field.get("description"), f"{model}.{name}"
            assert field.get("examples"), f"{model}.{name}"
            for example in field["examples"]:
                conforms(example, field)
    ids = set()
    for operation in operations():
        ids.add(operation["operationId"])
        assert operation["description"]
        assert operation["summary"]
        bodies = [operation[key] for key in ("requestBody",) if key in operation]
        if "x-websocket" in operation:
            assert operation["responses"]["101"].keys() == {"description"}
        else:
            bodies.append(next(iter(operation["responses"].values())))
        for holder in bodies:
            content = holder["content"]["application/json"]
            for example in examples_of(content):
                conforms(example, content["schema"])
        for parameter in operation["parameters"]:
            if "$ref" not in parameter:
                assert parameter["description"]
                assert parameter["in"] != "path" or parameter["required"]
                conforms(parameter["example"], parameter["schema"])
    assert len(ids) == len(operations())
    assert DOCUMENT["servers"]
    described = {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    assert {tag for operation in operations() for tag in operation["tags"]} == described


def test_the_service_accepts_the_examples_of_requests() -> None:
    for endpoint in ENDPOINTS:
        operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
        if endpoint.body is not None:
            content = operation["requestBody"]["content"]["application/json"]
            for example in examples_of(content):
                decode_body(msgspec.json.Decoder(endpoint.body), json.dumps(example).encode())


def test_optional_fields_of_requests_have_no_default() -> None:
    """Generators take a field with a default for one that is always there."""
    for operation in operations():
        for content in everywhere(operation.get("requestBody", {})):
            assert "default" not in content
    assert not any("default" in schema for schema in everywhere(DOCUMENT["components"]["schemas"]))


def test_a_response_requires_what_is_always_present() -> None:
    """Such a field is null where it has no value."""
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("Session", "AgentState", "DaemonStatus", "DebugBundle", "Webhook", "Control"):
        assert set(schemas[name]["required"]) == set(schemas[name]["properties"])
    assert schemas["ErrorBody"]["required"] == ["error"]
    assert "connected" not in schemas["Daemon"]["required"]


@pytest.mark.parametrize(
    ("model", "field", "values"),
    [
        ("WebhookRequest", "events", {*EventName, "*"}),
        ("Webhook", "events", {*EventName, "*"}),
        ("Delivery", "event", set(EventName)),
        ("LastDelivery", "event", set(EventName)),
        ("KeyView", "scopes", set(Scope)),
        ("Account", "plan", set(PLANS)),
        ("Session", "status", {"idle", "generating", "waiting_approval", "error"}),
    ],
)
def test_a_field_with_few_values_is_an_enum(model: str, field: str, values: set[str]) -> None:
    schema = DOCUMENT["components"]["schemas"][model]["properties"][field]
    assert set(schema.get("items", schema)["enum"]) == values


def test_each_command_is_described_with_its_own_payload() -> None:
    content = DOCUMENT["paths"]["/api/v1/daemons/{daemonId}/command"]["post"]["requestBody"]
    mapping = content["content"]["application/json"]["schema"]["discriminator"]["mapping"]
    assert mapping.keys() == PUBLIC_COMMANDS
    # Who answers an action, the service says to the machine, and not the client.
    payloads: dict[CommandType, type[Any]] = {
        **{command: spec.payload for command, spec in COMMANDS.items()},
        CommandType.RESOLVE_ACTION: ResolveAction,
    }
    for command, reference in mapping.items():
        schema = DOCUMENT["components"]["schemas"][reference.rpartition("/")[2]]
        payload = schema["properties"]["payload"]
        references = {part["$ref"] for part in everywhere(payload) if "$ref" in part}
        assert references == {f"#/components/schemas/{payloads[CommandType(command)].__name__}"}


def test_a_post_that_changes_something_takes_an_idempotency_key() -> None:
    for endpoint in ENDPOINTS:
        operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
        takes = {"$ref": "#/components/parameters/IdempotencyKey"} in operation["parameters"]
        assert takes == (
            endpoint.method == "POST" and endpoint.mutates and endpoint.who != "anyone"
        )


def test_each_operation_names_its_scope() -> None:
    """Each method and path, with its scope."""
    for method, path, scope, _, _ in WITH_SCOPES:
        full = "/api/v1" + path.format(daemon="{daemonId}", target="{ideId}")
        operation = DOCUMENT["paths"][full][method.lower()]
        assert operation.get("security", DOCUMENT["security"])
        assert f"`{scope}`" in operation["description"]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/v1/shortcuts/{ideId}/chat", {"agentType", "limit", "after", "before"}),
        ("/api/v1/shortcuts/{ideId}/status", {"agentType"}),
        ("/api/v1/shortcuts/{ideId}/chat/debug", {"agentType"}),
        ("/api/v1/webhooks/{webhookId}/deliveries", {"limit", "before"}),
        ("/api/v1/daemons", {"state"}),
        ("/api/v1/account", set()),
    ],
)
def test_query_parameters_are_those_that_the_handler_uses(path: str, names: set[str]) -> None:
    """No parameter that would do nothing."""
    parameters = DOCUMENT["paths"][path]["get"]["parameters"]
    assert {item["name"] for item in parameters if item["in"] == "query"} == names


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
        assert not re.search(r"(?:src|href|url)\W*(?:https?:)?//", page)

    async def test_docs_shows_descriptions_and_examples(self, site: Site) -> None:
        page = html.unescape((await site.client().get("/docs")).text)
        plain = re.sub(r"</?code>", "`", page)
        for schema in DOCUMENT["components"]["schemas"].values():
            for field in schema.get("properties", {}).values():
                assert field["description"] in plain
                assert json.dumps(field["examples"][0]) in page
        for operation in operations():
            for paragraph in operation["description"].split("\n\n"):
                assert paragraph in plain
            success = next(iter(operation["responses"].values()))
            if "content" not in success:  # a WebSocket's
                continue
            for example in examples_of(success["content"]["application/json"]):
                assert json.dumps(example, indent=2, ensure_ascii=False) in page

    async def test_health(self, site: Site) -> None:
        """docs/deploy.md: /healthz the process lives, /readyz the database answers."""
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
