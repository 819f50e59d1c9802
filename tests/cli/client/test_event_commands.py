"""Events that are forwarded to a local receiver."""

import asyncio
import json

import pytest

from outrider.cli.client.event_commands import Forwarder
from outrider.cli.client.output import UsageError
from outrider.sdk import AsyncAgent, Event, webhooks
from tests.rig.processes import Program
from tests.rig.waiting import TIMEOUT
from tests.sdk.scripted_api import CLOSES, ScriptedApi, answer

BODY = '{"id":"evt_1","event":"agent:error","timestamp":1,"payload":{"chatTitle":"Grüße"}}'
EVENT = Event(id="evt_1", event="agent:error", timestamp=1, body=BODY)


async def test_they_are_signed_as_webhooks_are() -> None:
    async with ScriptedApi([answer(204, b""), CLOSES]) as receiver:
        forwarder = Forwarder(f"{receiver.url}/hook")
        answered = await asyncio.to_thread(forwarder.forward, EVENT)
        failed = await asyncio.to_thread(forwarder.forward, EVENT)
    request = receiver.requests[0]
    assert (request.method, request.path) == ("POST", "/hook")
    assert request.body == BODY.encode()
    signature = request.headers["x-service-signature"]
    assert webhooks.verify(request.body, signature, forwarder.secret)["id"] == "evt_1"
    assert request.headers["x-service-event"] == "agent:error"
    assert forwarder.secret.startswith("whsec_")
    assert answered.endswith("answered 204")
    assert "did not take it" in failed


@pytest.mark.parametrize(
    "url", ["localhost:1", "ftp://x", "", "http://", "http://localhost:port", "http://10.0.0.256"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Forwarder(url)


@pytest.mark.asyncio(loop_scope="session")
async def test_json_is_one_object_a_line(env: dict[str, str], agent: AsyncAgent) -> None:
    command = ("-m", "outrider", "events", "--events", "agent:*", "--json")
    async with Program(*command, env=env) as program:
        line = asyncio.create_task(program.next_line())
        while not line.done():  # the command may not be connected yet
            await agent.ask("Hello", timeout=TIMEOUT)
        event = json.loads(await line)
    assert event["event"].startswith("agent:")
    assert event["payload"]["ideType"] == "demo"
