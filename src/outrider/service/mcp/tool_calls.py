"""Runs tools: each call becomes a request to the endpoint table, as if the client had made it.

The request passes the same checks as one over HTTP, except those that `/mcp` has made already: it
is not authenticated and counted a second time.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

import msgspec
from starlette.types import Message, Receive, Scope

from outrider.contract.commands import AgentState, AgentStatusQuery, CommandType
from outrider.contract.errors import ApiError, ErrorCode, OutriderError
from outrider.contract.structs import Wire
from outrider.contract.targets import parse_target
from outrider.service.accounts.principal import Principal
from outrider.service.http.authorization import RequestContext
from outrider.service.http.endpoint import BoundEndpoint, Endpoint, Method
from outrider.service.http.pipeline import CONTEXT, Pipeline, resources
from outrider.service.http.request_body import decode_body
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.machines.presence import Presence
from outrider.service.mcp.tools import BY_NAME, TOOLS, ApiRequest, MachineList, OfAgent, Tool

CALLER: Final = "outrider.mcp_caller"
"""The key in the scope of a request that has its `Caller`."""

MACHINES_URI: Final = "outrider://machines"
AGENT_URI: Final = "outrider://agents/{id}"
CHAT_URI: Final = "outrider://agents/{id}/chat"

_AGENTS: Final = AGENT_URI.format(id="")
_CHAT: Final = "/chat"

_APPROVALS_OFF: Final = (
    "Approvals cannot be answered over MCP on this service: ask your user to answer it in the "
    "dashboard. The operator turns this tool on with OUTRIDER_MCP_APPROVALS=true"
)
_OWN_APPROVAL: Final = (
    "This is the approval of your own session, which you cannot answer: ask your user to"
)

_decoders: dict[type[Wire], msgspec.json.Decoder[Any]] = {
    tool.arguments: msgspec.json.Decoder(tool.arguments) for tool in TOOLS
}


class ToolError(OutriderError):
    """A tool call failed; the text says to a model what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls a tool, as the request to `/mcp` has established it.

    Args:
        session: the session in which the caller says that it runs, by its id or target id.
        client_gone: returns when the client has disconnected.
    """

    principal: Principal
    address: str
    request_id: bytes
    session: str | None
    client_gone: Callable[[], Awaitable[None]]


class _Response(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class ToolCalls:
    """Runs the tools of a service.

    Args:
        endpoints: the endpoint table.
        approvals: whether `respond_approval` may be used.
    """

    def __init__(
        self,
        endpoints: Sequence[BoundEndpoint],
        pipeline: Pipeline,
        dispatcher: Dispatcher,
        presence: Presence,
        *,
        approvals: bool,
    ) -> None:
        self._apps = {one.path: one for one in resources(endpoints, pipeline)}
        self._rows: dict[tuple[Method, str], Endpoint[Any]] = {
            (one.endpoint.method, one.endpoint.path): one.endpoint for one in endpoints
        }
        self._dispatcher = dispatcher
        self._presence = presence
        self._approvals = approvals

    def may_call(self, principal: Principal, tool: Tool) -> bool:
        """Return whether a principal has the scope of a tool."""
        endpoint = self._rows[tool.endpoint]
        if not endpoint.mutates and endpoint.read_scope in principal.scopes:
            return True
        return endpoint.scope is None or endpoint.scope in principal.scopes

    def listed(self, principal: Principal) -> Iterable[Tool]:
        """Return the tools that a principal may use."""
        return [
            tool
            for tool in TOOLS
            if self.may_call(principal, tool) and (self._approvals or not tool.is_approval)
        ]

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool and return its result.

        Raises:
            ToolError: it failed, was refused, or the arguments are wrong.
        """
        tool = BY_NAME.get(name)
        if tool is None:
            raise ToolError(f"There is no tool {name[:100]!r}: it is one of {', '.join(BY_NAME)}")
        if tool.is_approval and not self._approvals:
            raise ToolError(_APPROVALS_OFF)
        try:
            given = decode_body(_decoders[tool.arguments], msgspec.json.encode(arguments))
            request = tool.request(given)
            if self.may_call(caller.principal, tool):  # otherwise it is refused, and audited, below
                request = await self._completed(caller, request, given)
                if tool.is_approval:
                    await self._refuse_own(caller, request)
        except ApiError as error:
            raise _explained(tool, error.status, error.message, error.code) from error
        response = await self._request(caller, request)
        if response.status >= 400:
            raise _failure(tool, response)
        result = tool.output(response.body)
        if tool.result is MachineList:
            await self._add_types(caller.principal.account_id, result["machines"])
        return result

    async def read(self, caller: Caller, uri: str) -> dict[str, Any] | None:
        """Return what a resource contains; None if there is no such resource.

        Raises:
            ToolError: it cannot be read.
        """
        if uri == MACHINES_URI:
            return await self.call(caller, "list_machines", {})
        if not uri.startswith(_AGENTS):
            return None
        agent = uri.removeprefix(_AGENTS)
        name = "read_chat" if agent.endswith(_CHAT) else "get_agent"
        return await self.call(caller, name, {"agent": unquote(agent.removesuffix(_CHAT))})

    async def _add_types(self, account_id: str, machines: list[dict[str, Any]]) -> None:
        """Add to each machine the types that can be launched on it, which the API's list lacks."""
        states = {one.id: one for one in await self._presence.all_of_account(account_id)}
        for machine in machines:
            state = states.get(machine["id"])
            providers = () if state is None else state.providers
            machine["types"] = [one.type for one in providers if one.installed and not one.error]

    async def _completed(self, caller: Caller, request: ApiRequest, given: Wire) -> ApiRequest:
        """Return a request with the id of its machine and the type of its agent.

        What is not found is left as it is, for the endpoint to refuse.
        """
        account_id = caller.principal.account_id
        machine = getattr(given, "machine", None)
        if machine is not None:
            machine_id = await self._machine_id(account_id, machine)
            return replace(request, parameters={"daemonId": machine_id})
        if request.type_of is not None:
            found = await self._type_of(caller, request.type_of)
            return replace(request, body={**(request.body or {}), "type": found})
        return request

    async def _machine_id(self, account_id: str, name: str) -> str:
        """Return the id of a machine by its id or nickname; `name` itself if there is none."""
        machines = await self._presence.all_of_account(account_id)
        if any(machine.id == name for machine in machines):
            return name
        found = [machine.id for machine in machines if machine.nickname == name]
        if len(found) > 1:
            raise ToolError(
                f"{len(found)} machines have the nickname {name!r}: give the id of one of them: "
                + ", ".join(found[:10])
            )
        return found[0] if found else name

    async def _type_of(self, caller: Caller, agent: str) -> str:
        """Return the type of an agent.

        Raises:
            ApiError: there is no such agent, or its machine does not answer.
        """
        target = parse_target(agent)
        if target is None:
            return "unknown"  # the endpoint refuses the target
        if target.kind != "session":
            return target.name
        machine = await self._dispatcher.owned(caller.principal.account_id, target.daemon_id)
        session = machine.sessions.get(target.name)
        if session is not None:
            return session.type
        return (await self._status(caller, agent)).agent_type  # launched a moment ago

    async def _refuse_own(self, caller: Caller, request: ApiRequest) -> None:
        """Refuse to answer the approval of the session in which the caller runs.

        Raises:
            ToolError: it is the caller's own.
            ApiError: there is no such agent, or its machine does not answer.
        """
        if caller.session is None:
            return
        state = await self._status(caller, request.parameters["ideId"])
        if state.session_id == caller.session.rpartition(":")[2]:
            raise ToolError(_OWN_APPROVAL)

    async def _status(self, caller: Caller, agent: str) -> AgentState:
        target = parse_target(agent)
        if target is None:
            raise ApiError(404, f"No agent {agent!r}")
        data = await self._dispatcher.call(
            caller.principal.account_id,
            target.daemon_id,
            CommandType.AGENT_STATUS,
            msgspec.json.encode(AgentStatusQuery(target=agent)),
            caller.client_gone,
        )
        return msgspec.json.decode(data, type=AgentState)

    async def _request(self, caller: Caller, request: ApiRequest) -> _Response:
        """Pass a request through the endpoint's pipeline and return the response.

        Raises:
            ToolError: the client has disconnected.
        """
        context = RequestContext(caller.address)
        context.principal = caller.principal
        body = b"" if request.body is None else msgspec.json.encode(request.body)
        scope: Scope = {
            "type": "http",
            "method": request.method,
            "path": request.path.format(**request.parameters),
            "path_params": dict(request.parameters),
            "query_string": urlencode(request.query).encode(),
            "headers": [(b"content-length", b"%d" % len(body))],
            "request_id": caller.request_id,
            CONTEXT: context,
        }
        answer: list[Message] = []

        async def send(message: Message) -> None:
            answer.append(message)

        await self._apps[request.path](scope, receive_body(body, caller.client_gone), send)
        if not answer:
            raise ToolError("The client has disconnected")
        start, *parts = answer
        data = b"".join(part.get("body", b"") for part in parts)
        return _Response(start["status"], dict(start["headers"]), data)


def receive_body(body: bytes, client_gone: Callable[[], Awaitable[None]]) -> Receive:
    """Return what an application receives of a request whose body has been read."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await client_gone()
        return {"type": "http.disconnect"}

    return receive


def _failure(tool: Tool, response: _Response) -> ToolError:
    body: dict[str, Any] = msgspec.json.decode(response.body)
    wait = response.headers.get(b"retry-after")
    seconds = None if wait is None else float(wait)
    return _explained(tool, response.status, body["error"], body.get("code"), seconds)


def _explained(
    tool: Tool, status: int, text: str, code: str | None, retry_after: float | None = None
) -> ToolError:
    """Return an error of the API as one that names the tool to call next."""
    advice = None
    # With the agent as the only argument, that is what is wrong.
    if status == 404 or (status == 400 and tool.arguments is OfAgent):
        names_machine = "machine" in tool.arguments.__struct_fields__
        advice = (
            "Call list_machines for the machines that there are"
            if names_machine
            else "Call list_agents for the agents that run"
        )
    elif status == 403:
        advice = "Ask your user for an API key with this scope"
    elif code == ErrorCode.APPROVAL_PENDING:
        advice = "Call list_approvals to see what it asks"
    elif status in {500, 503}:
        advice = "Call list_machines to see whether the machine is connected"
    elif retry_after is not None:
        advice = retry_advice(retry_after)
    return ToolError(text if advice is None else f"{text.rstrip('.')}. {advice}.")


def retry_advice(seconds: float) -> str:
    """Return what to do after a refusal that lasts for some seconds."""
    return f"Try again in {max(1, ceil(seconds))} seconds"
