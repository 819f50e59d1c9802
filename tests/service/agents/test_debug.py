"""GET and POST …/chat/debug through the service.

Holds docs/debug.md. What is in a bundle is the machine's business: tests/machine/debug.
"""

import json
from typing import Any

import pytest
from sqlalchemy import select

from outrider.service.database import tables
from tests.rig.errors import assert_error, paths
from tests.rig.machine import payload_of
from tests.rig.people import dashboard, person
from tests.rig.samples import DEBUG, session
from tests.rig.site import Owner, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.one_store]


def path(machine_id: str) -> str:
    return f"/api/v1/shortcuts/{machine_id}:cli:claude-code/chat/debug"


@pytest.mark.parametrize(
    ("method", "body", "query", "payload"),
    [
        ("GET", None, "", {"agentType": None, "frontendSnapshot": None}),
        ("GET", None, "?agentType=claude-code", {"agentType": "claude-code"}),
        ("GET", None, "?frontendSnapshot=x&target=y&sessionId=z", {"frontendSnapshot": None}),
        ("POST", "", "", {"agentType": None, "frontendSnapshot": None}),
        ("POST", " \n", "", {"frontendSnapshot": None}),
        ("POST", "{}", "", {"frontendSnapshot": None}),
        ("POST", '{"frontendSnapshot":null}', "", {"frontendSnapshot": None}),
        ("POST", '{"frontendSnapshot":{}}', "", {"frontendSnapshot": {}}),
        (
            "POST",
            '{"agentType":"claude-code","other":"field",'  # noqa: ISC004
            '"frontendSnapshot":{"activeConversation":{"sessionId":"session_1","n":[1,null,"ö"]}}}',
            "",
            {
                "agentType": "claude-code",
                "frontendSnapshot": {
                    "activeConversation": {"sessionId": "session_1", "n": [1, None, "ö"]}
                },
            },
        ),
    ],
)
async def test_what_reaches_the_machine(
    owner: Owner, method: str, body: str | None, query: str, payload: dict[str, Any]
) -> None:
    machine = await owner.machine(session())
    request = owner.sends(method, path(machine.id) + query, content=body)
    taken = await machine.takes("chat_debug", **payload)
    assert payload_of(taken)["target"] == f"{machine.id}:cli:claude-code"
    await machine.answers(taken)
    response = await request
    assert response.status_code == 200
    assert response.json() == DEBUG


@pytest.mark.parametrize(
    ("body", "blamed"),
    [
        (b"[]", ""),
        (b'{"frontendSnapshot":[]}', "frontendSnapshot"),
        (b'{"agentType":""}', "agentType"),
        (b'{"frontendSnapshot":' + b'{"a":' * 65 + b"1" + b"}" * 66, "frontendSnapshot"),
        (b'{"frontendSnapshot":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, ""),
    ],
)
async def test_bad_bodies(owner: Owner, body: bytes, blamed: str) -> None:
    """Not JSON, not an object, a field of the wrong type: 400."""
    machine = await owner.machine()
    assert paths(await owner.api.post(path(machine.id), content=body)) == [blamed]
    assert machine.received_nothing()


async def test_a_body_of_more_than_1_mib(owner: Owner) -> None:
    machine = await owner.machine()
    body = {"frontendSnapshot": {"x": "y" * 1024 * 1024}}
    assert_error(await owner.api.post(path(machine.id), json=body), 413)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_reading_is_enough(owner: Owner, method: str) -> None:
    """docs/debug.md: both need `agent:read`, and no more."""
    machine = (await owner.machine(session())).obliges()
    reader = await owner.may("agent:read")
    assert (await reader.request(method, path(machine.id))).status_code == 200
    controller = await owner.may("agent:control", "ide:control")
    assert_error(await controller.request(method, path(machine.id)), 403, "AUTH_FORBIDDEN")


async def test_a_machine_whose_answer_is_none(owner: Owner) -> None:
    machine = await owner.machine(session())
    request = owner.sends("GET", path(machine.id))
    taken = await machine.takes("chat_debug")
    await machine.answers(taken, {"success": True, "text": "no bundle"})
    assert_error(await request, 500)


async def test_nothing_of_it_is_kept(site: Site, owner: Owner) -> None:
    """It changes nothing: no record in the audit, no answer under an Idempotency-Key."""
    owner = await person(site)  # with a password, for the dashboard
    machine = (await owner.machine(session())).obliges()
    body = {"frontendSnapshot": {"marker": "snapshot-marker"}}
    key = {"Idempotency-Key": "the same for both"}
    for _ in range(2):
        response = await owner.api.post(path(machine.id), json=body, headers=key)
        assert response.status_code == 200
        assert "idempotency-replayed" not in response.headers
    other: dict[str, Any] = {"frontendSnapshot": {}}
    assert (await owner.api.post(path(machine.id), json=other, headers=key)).status_code == 200
    refused = await (await owner.may("agent:control")).post(path(machine.id), json=body)
    assert refused.status_code == 403
    trail = await (await dashboard(owner)).get("/api/v1/audit")
    audit = trail.json()["records"]
    assert [(record["action"], record["outcome"]) for record in audit] == [("chat_debug", 403)]
    assert "snapshot-marker" not in json.dumps(audit)
    async with owner.site.database.begin() as connection:
        kept = (await connection.execute(select(tables.idempotency_keys))).all()
    assert not [row for row in kept if "the same for both" in row]
