"""The client and the API's description: every endpoint has a method, with all that it takes."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from outrider.contract.commands import ChatInput, TextPart
from outrider.contract.event_stream import EventPage
from outrider.contract.resources import Daemon
from outrider.sdk import Agent, AsyncAgent, AsyncMachine, AsyncOutrider, Machine, Outrider
from outrider.sdk import operations as ops
from outrider.sdk.operations import Operation
from outrider.service.endpoints import ENDPOINTS
from outrider.service.http.openapi import describe

DOCUMENT = describe(ENDPOINTS)
LOGINS = {"LOG_IN", "REAUTHENTICATE", "LOG_OUT"}
"""What the client does by itself if it has a login: tests/sdk/test_login.py."""

OPERATIONS: dict[str, Operation[Any]] = {
    name: value
    for name, value in vars(ops).items()
    if isinstance(value, Operation) and name not in LOGINS
}

# A dashboard session also manages keys and logins: not what a program does.
# A WebSocket is a conversation of its own: `outrider attach`.
COVERED = [
    endpoint
    for endpoint in ENDPOINTS
    if endpoint.who in {"scope", "principal"} and endpoint.socket is None
]

M, T, W = "machine_1", "machine_1:session:session_1", "webhook_1"


def machine(client: Outrider) -> Machine:
    return client.machines.list(state="all")[0]


def agent(client: Outrider) -> Agent:
    return client.agent(T, agent_type="chat")


CALLS: dict[str, Callable[[Outrider], Any]] = {
    "LIST_MACHINES": lambda c: c.machines.list(state="all"),
    "MACHINE_STATUS": lambda c: machine(c).status(),
    "COMMAND": lambda c: machine(c).command("screenshot", {}),
    "RUN": lambda c: machine(c).run("ls", cwd="/srv", name="build"),
    "LIST_TERMINALS": lambda c: machine(c).terminals(),
    "CLOSE_TERMINAL": lambda c: machine(c).close_terminal("build"),
    "DISCONNECT": lambda c: machine(c).disconnect(),
    "REVOKE": lambda c: machine(c).revoke(),
    "MACHINE_SESSIONS": lambda c: machine(c).sessions(state="ended", limit=1, before="session_2"),
    "LIST_SESSIONS": lambda c: c.sessions.list(state="ended", q="a", limit=1, before="session_2"),
    "LIST_APPROVALS": lambda c: c.approvals.pending(),
    "LAUNCH": lambda c: machine(c).launch(
        "demo", dir="/srv", model="big", resume="session_1", worktree="new"
    ),
    "STOP": lambda c: machine(c).stop(
        "demo", session_id="session_1", target=T, dir="/srv", remove_worktree=True
    ),
    "SEND": lambda c: agent(c).send(
        "Hi", input=ChatInput(parts=[TextPart(text="Hi")]), controls={"mode": "plan"}
    ),
    "READ_CHAT": lambda c: agent(c).chat(limit=1, after="msg_1", before="msg_2"),
    "WAIT": lambda c: agent(c).wait(after="msg_1", until=["idle"], timeout=1),
    "STATUS": lambda c: agent(c).status(),
    "ANSWER": lambda c: agent(c).approve(action_id="act_1", option_id="yes"),
    "INTERRUPT": lambda c: agent(c).interrupt(),
    "READ_QUEUE": lambda c: agent(c).queue(),
    "WITHDRAW": lambda c: agent(c).withdraw("msg_1"),
    "REMOVE_WORKTREE": lambda c: agent(c).remove_worktree(),
    "READ_DIFF": lambda c: agent(c).diff("main"),
    "READ_FILES": lambda c: agent(c).files("src"),
    "READ_SCREEN": lambda c: agent(c).screen(),
    "READ_DEBUG": lambda c: agent(c).debug(),
    "SEND_DEBUG": lambda c: agent(c).debug({"shown": 1}),
    "EVENTS": lambda c: next(
        c.events(["agent:*"], machine_id=M, target=T, deltas=True, after="41"), None
    ),
    "LIST_WEBHOOKS": lambda c: c.webhooks.list(),
    "CREATE_WEBHOOK": lambda c: c.webhooks.create("https://example.org", ["*"]),
    "CHANGE_WEBHOOK": lambda c: c.webhooks.update(W, active=False),
    "DELETE_WEBHOOK": lambda c: c.webhooks.delete(W),
    "LIST_DELIVERIES": lambda c: c.webhooks.deliveries(W, limit=1, before="dlv_1"),
    "READ_DELIVERY": lambda c: c.webhooks.delivery(W, "dlv_1"),
    "TEST_WEBHOOK": lambda c: c.webhooks.test(W),
    "RESEND": lambda c: c.webhooks.resend(W, "dlv_1"),
    "REPLAY": lambda c: c.webhooks.replay(W, since=1),
    "ROTATE_SECRET": lambda c: c.webhooks.rotate_secret(W),
    "ACCOUNT": lambda c: c.account(),
}
"""A call of each operation with everything that it takes."""

LEFT_OUT = {
    # The path of a method names the session already.
    "SEND": {"target", "sessionId", "targetSessionId"},
    "ANSWER": {"target", "sessionId", "targetSessionId"},
    "INTERRUPT": {"target", "sessionId", "targetSessionId"},
    "SEND_DEBUG": {"target", "sessionId", "targetSessionId"},
    "STOP": {"targetSessionId"},  # the same as `sessionId`
    "EVENTS": {"limit", "wait"},  # of pages; the client streams
}


NOT_IN_SHORT = {"cdp_connected", "connected_at", "last_seen_at", "reconnecting"}
"""The fields of a machine that only its `daemon` has."""


def described(operation: Operation[Any]) -> dict[str, Any]:
    methods: dict[str, Any] = DOCUMENT["paths"][f"/api/v1{operation.path}"]
    return dict(methods[operation.method.lower()])


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Follow the reference of a part of the document."""
    if "$ref" not in part:
        return part
    target = DOCUMENT
    for name in part["$ref"].split("/")[1:]:
        target = target[name]
    return target


def fields_of(description: dict[str, Any]) -> set[str]:
    """Return the names of the query parameters, or of the fields of the body."""
    if "requestBody" not in description:
        parameters = map(resolved, description.get("parameters", []))
        return {field["name"] for field in parameters if field["in"] == "query"}
    schema = description["requestBody"]["content"]["application/json"]["schema"]
    if "oneOf" in schema or "anyOf" in schema:
        return {"type", "payload"}
    return set(resolved(schema)["properties"])


class Api:
    """Answers each request with the example of the document, and keeps the request."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        self.client = Outrider(
            "http://test",
            "ork_x",
            http_client=httpx2.Client(transport=httpx2.MockTransport(self._answer)),
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if request.headers["accept"] == "text/event-stream":
            return httpx2.Response(
                200,
                headers={"content-type": "text/event-stream"},
                text='event: stream:ready\ndata: {"resume":"ok","cursor":"41"}\n\n'
                'id: 42\nevent: agent:error\ndata: {"id":"evt_1","event":"agent:error",'
                '"timestamp":1,"payload":{}}\n\n',
            )
        path = request.url.path
        for template, methods in DOCUMENT["paths"].items():
            pattern = re.sub(r"{\w+}", "[^/]+", template)
            if re.fullmatch(pattern, path) and request.method.lower() in methods:
                responses = methods[request.method.lower()]["responses"]
                status = min(responses)
                content = responses[status]["content"]["application/json"]
                return httpx2.Response(int(status), json=example(content))
        raise AssertionError(f"{request.method} {path} is not described")


def example(content: dict[str, Any]) -> Any:
    """Return the first example of a body."""
    examples = [example["value"] for example in content.get("examples", {}).values()]
    return examples[0] if examples else content["example"]


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    api.client.close()


def test_every_endpoint_has_an_operation_and_a_call() -> None:
    assert {(each.method, f"/api/v1{each.path}") for each in OPERATIONS.values()} == {
        (endpoint.method, endpoint.path) for endpoint in COVERED
    }
    assert CALLS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_returns_what_its_endpoint_answers(name: str) -> None:
    operation = OPERATIONS[name]
    (endpoint,) = (
        endpoint
        for endpoint in COVERED
        if (endpoint.method, endpoint.path) == (operation.method, f"/api/v1{operation.path}")
    )
    if name in {"COMMAND", "READ_FILES"}:
        assert len(endpoint.responses) > 1
    elif name == "EVENTS":
        assert endpoint.responses == (EventPage,)
    else:
        assert endpoint.responses == (operation.response,)


@pytest.mark.parametrize("name", OPERATIONS)
def test_its_method_sends_everything_that_the_endpoint_takes(name: str, api: Api) -> None:
    operation, description = OPERATIONS[name], described(OPERATIONS[name])
    result = CALLS[name](api.client)
    assert result is not None
    request = api.requests[-1]
    assert request.method == operation.method
    pattern = re.sub(r"{\w+}", "[^/]+", f"/api/v1{operation.path}")
    assert re.fullmatch(pattern, request.url.path)
    sent = (
        set(msgspec.json.decode(request.content))
        if "requestBody" in description
        else set(request.url.params)
    )
    assert sent == fields_of(description) - LEFT_OUT.get(name, set())
    assert ("Idempotency-Key" in request.headers) == (operation.method == "POST")


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_a_machine_has_every_field_or_it_is_left_out_above() -> None:
    properties = {name for name, value in vars(Machine).items() if isinstance(value, property)}
    assert properties == {field.name for field in msgspec.structs.fields(Daemon)} - NOT_IN_SHORT


def test_both_clients_have_the_same_names() -> None:
    renamed = {"aclose": "close"}
    for asynchronous, synchronous in (
        (AsyncOutrider, Outrider),
        (AsyncMachine, Machine),
        (AsyncAgent, Agent),
    ):
        names = {renamed.get(name, name) for name in public(asynchronous)}
        assert names == public(synchronous)
