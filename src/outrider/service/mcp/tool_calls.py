"""Runs tools: each call becomes a request to the endpoint table, as if the client had made it.

The request passes the same checks as one over HTTP, except those that `/mcp` has made already: it
is not authenticated and counted a second time.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any, Final
from urllib.parse import unquote, urlencode

import msgspec
from starlette.types import Message, Receive, Scope

from outrider.contract.commands import AgentState, AgentStatusQuery, CommandType
from outrider.contract.errors import ApiError, ErrorCode, OutriderError
from outrider.contract.targets import parse_target
from outrider.service.accounts.principal import Principal
from outrider.service.http.authorization import RequestContext
from outrider.service.http.endpoint import BoundEndpoint, Call
from outrider.service.http.pipeline import EndpointApp, Pipeline
from outrider.service.http.request_body import decode_body
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.machines.presence import Presence
from outrider.service.mcp.tools import BY_NAME, ROWS, TOOLS, Tool

MACHINES_URI: Final = "outrider://machines"
AGENT_URI: Final = "outrider://agents/{id}"
CHAT_URI: Final = "outrider://agents/{id}/chat"

_SESSION_HEADER: Final = b"x-outrider-session"
"""Names the session in which the client runs, so that it cannot answer its own approvals."""

_APPROVALS_OFF: Final = (
    "Approvals cannot be answered over MCP on this service: ask your user to answer it in the "
    "dashboard. The operator turns this tool on with OUTRIDER_MCP_APPROVALS=true"
)
_OWN_APPROVAL: Final = (
    "This is the approval of your own session, which you cannot answer: ask your user to"
)


class ToolError(OutriderError):
    """A tool call failed; the text says to a model what to do."""


class ToolCalls:
    """Runs the tools of a service. A caller is its request to `/mcp`.

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
        self._apps = {bound.endpoint.operation: EndpointApp(bound, pipeline) for bound in endpoints}
        self._dispatcher = dispatcher
        self._presence = presence
        self._approvals = approvals

    def may_call(self, principal: Principal, tool: Tool) -> bool:
        """Return whether a principal has the scope of a tool."""
        row = self._apps[tool.operation].endpoint
        if not row.mutates and row.read_scope in principal.scopes:
            return True
        return row.scope is None or row.scope in principal.scopes

    def listed(self, principal: Principal) -> Iterable[Tool]:
        """Return the tools that a principal may use."""
        return [
            tool
            for tool in TOOLS
            if self.may_call(principal, tool) and (self._approvals or not tool.is_approval)
        ]

    async def call(self, caller: Call, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
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
            decoder = msgspec.json.Decoder(tool.model)
            fields = tool.fields(decode_body(decoder, msgspec.json.encode(arguments)))
            if tool.operation == "stop":
                # Its path names the machine; a target of no machine is refused by the endpoint.
                fields["daemonId"], fields["type"] = fields["target"].partition(":")[0], "unknown"
            if self.may_call(caller.principal, tool):  # otherwise it is refused, and audited, below
                await self._complete(caller, tool, fields)
            result = await self._request(caller, tool, fields)
        except ApiError as error:
            raise _explained(tool, error) from error
        if tool.renamed is not None:
            old_name, new_name = tool.renamed
            result = {new_name: result[old_name]}
        if tool.name == "list_machines":
            await self._add_types(caller.account_id, result["machines"])
        return result

    async def read(self, caller: Call, uri: str) -> dict[str, Any]:
        """Return what a resource contains.

        Raises:
            ToolError: there is no such resource, or it cannot be read.
        """
        if uri == MACHINES_URI:
            return await self.call(caller, "list_machines", {})
        start = AGENT_URI.format(id="")
        if not uri.startswith(start):
            uris = f"{MACHINES_URI}, {AGENT_URI} or {CHAT_URI}"
            raise ToolError(f"There is no resource {uri[:200]!r}: it is {uris}")
        agent = unquote(uri.removeprefix(start).removesuffix("/chat"))
        name = "read_chat" if uri.endswith("/chat") else "get_agent"
        return await self.call(caller, name, {"agent": agent})

    async def _add_types(self, account_id: str, machines: list[dict[str, Any]]) -> None:
        """Add to each machine the types that can be launched on it, which the API's list lacks."""
        states = {state.id: state for state in await self._presence.all_of_account(account_id)}
        for machine in machines:
            state = states.get(machine["id"])
            providers = () if state is None else state.providers
            machine["types"] = [
                provider.type for provider in providers if provider.installed and not provider.error
            ]

    async def _complete(self, caller: Call, tool: Tool, fields: dict[str, Any]) -> None:
        """Complete the fields with what only machines know.

        What does not exist is left as it is, for the endpoint to refuse.

        Raises:
            ToolError: the caller may not do this, or several machines are meant.
            ApiError: there is no such agent, or its machine does not answer.
        """
        # An id wins over a nickname that looks like it: nicknames are free text.
        if "machine" in tool.arguments and "daemonId" in fields:
            fields["daemonId"] = await self._machine_id(caller.account_id, fields["daemonId"])
        if tool.operation == "stop":
            fields["type"] = (await self._status(caller, fields["target"])).agent_type
        session = dict(caller.asgi_scope["headers"]).get(_SESSION_HEADER)
        if tool.is_approval and session is not None:
            own = session.decode("latin-1").rpartition(":")[2]
            if (await self._status(caller, fields["ideId"])).session_id == own:
                raise ToolError(_OWN_APPROVAL)

    async def _machine_id(self, account_id: str, name: str) -> str:
        """Return the id of a machine by its id or nickname; `name` itself if there is none."""
        machines = await self._presence.all_of_account(account_id)
        if any(machine.id == name for machine in machines):
            return name
        ids = [machine.id for machine in machines if machine.nickname == name]
        if len(ids) > 1:
            raise ToolError(
                f"{len(ids)} machines have the nickname {name!r}: give the id of one of them: "
                + ", ".join(ids[:10])
            )
        return ids[0] if ids else name

    async def _status(self, caller: Call, agent: str) -> AgentState:
        target = parse_target(agent)
        if target is None:
            raise ApiError(404, f"No agent {agent!r}")
        data = await self._dispatcher.call(
            caller.account_id,
            target.daemon_id,
            CommandType.AGENT_STATUS,
            msgspec.json.encode(AgentStatusQuery(target=agent)),
            caller.client_gone,
        )
        return msgspec.json.decode(data, type=AgentState)

    async def _request(self, caller: Call, tool: Tool, fields: dict[str, Any]) -> dict[str, Any]:
        """Pass a request through the endpoint's pipeline and return the body of the response.

        Raises:
            ApiError: it is refused, or has failed.
            ToolError: the client has disconnected.
        """
        operation = tool.operation
        if tool.of_machine is not None and "daemonId" in fields:
            operation = tool.of_machine
        row = ROWS[operation]
        in_path = {name: value for name, value in fields.items() if f"{{{name}}}" in row.path}
        others = {name: value for name, value in fields.items() if name not in in_path}
        body = msgspec.json.encode(others) if row.method == "POST" else b""
        scope: Scope = {
            "type": "http",
            "method": row.method,
            "path": row.path.format(**in_path),
            "path_params": in_path,
            "query_string": b"" if body else urlencode(others).encode(),
            "headers": [],
            "request_id": caller.asgi_scope["request_id"],
        }
        context = RequestContext(
            scope,
            {b"content-length": b"%d" % len(body)},
            caller.address,
            principal=caller.principal,
        )
        response = await self._apps[operation].inner(context, receive_body(body, caller))
        if response is None:
            raise ToolError("The client has disconnected")
        answer, headers = response
        data: dict[str, Any] = msgspec.json.decode(answer.body)
        if answer.status >= 400:
            wait = dict(headers).get(b"retry-after")
            raise ApiError(
                answer.status,
                data["error"],
                code=data.get("code"),
                retry_after=None if wait is None else float(wait),
            )
        return data


def receive_body(body: bytes, caller: Call) -> Receive:
    """Return what an application receives of a request whose body has been read."""
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if unread:
            return unread.pop()
        await caller.client_gone()
        return {"type": "http.disconnect"}

    return receive


def _explained(tool: Tool, error: ApiError) -> ToolError:
    """Return an error of the API as one that names the tool to call next."""
    advice = None
    # With the agent as the only argument, that is what is wrong.
    if error.status == 404 or (error.status == 400 and list(tool.arguments) == ["agent"]):
        advice = (
            "Call list_machines for the machines that there are"
            if "machine" in tool.arguments
            else "Call list_agents for the agents that run"
        )
    elif error.status == 403:
        advice = "Ask your user for an API key with this scope"
    elif error.code == ErrorCode.APPROVAL_PENDING:
        advice = "Call list_approvals to see what it asks"
    elif error.status in {500, 503}:
        advice = "Call list_machines to see whether the machine is connected"
    return ToolError(error_text(error, advice))


def error_text(error: ApiError, advice: str | None = None) -> str:
    """Return the text of an error with what to do next: to wait, if there is no other advice."""
    if advice is None and error.retry_after is not None:
        advice = f"Try again in {max(1, ceil(error.retry_after))} seconds"
    return error.message if advice is None else f"{error.message.rstrip('.')}. {advice}."
