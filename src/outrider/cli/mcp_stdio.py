"""`outrider mcp`: the tools of a service over standard input and output.

Each message is passed on to the service's `/mcp`, which decides everything: the tools, their
arguments, and what the key may do.
"""

import itertools
import os
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from mcp import MCPError, types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from outrider import __version__
from outrider.contract.errors import OutriderError
from outrider.contract.targets import SESSION_VARIABLE
from outrider.sdk.configuration import API_PATH, DEFAULT_URL, NOT_A_KEY, URL_VARIABLE

_VERSION: Final = "2025-11-25"
_TIMEOUT: Final = httpx2.Timeout(10, read=75)
"""Seconds. The longest tools take a minute: a command on a machine, and `wait_agent`."""

_Context = ServerRequestContext[Any, Any]


class Unusable(OutriderError):
    """The service cannot be used with these settings."""


@dataclass(frozen=True, slots=True)
class _Service:
    """The service at the other end."""

    http: httpx2.AsyncClient
    url: str
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def check(self) -> None:
        """Check that the service has MCP, and takes the key.

        Raises:
            Unusable: it does not; the text says why.
        """
        try:
            answer = await self.http.get(self.url)
        except (httpx2.InvalidURL, httpx2.HTTPError, UnicodeError) as error:
            raise Unusable(self._unreachable(error)) from error
        if answer.status_code != 405:  # the answer to a GET with a valid key
            text = _error_of(answer) or f"there is no Outrider (status {answer.status_code})"
            raise Unusable(f"{self.url}: {text}")

    async def request(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        """Send a message and return its result.

        Raises:
            MCPError: the service has refused it, or cannot be reached.
        """
        message = {
            "jsonrpc": "2.0",
            "id": next(self.numbers),
            "method": method,
            "params": params or {},
        }
        try:
            answer = await self.http.post(self.url, json=message)
        except httpx2.HTTPError as error:
            raise MCPError(types.INTERNAL_ERROR, self._unreachable(error)) from error
        body = _json(answer)
        if isinstance(body.get("result"), dict):
            result: dict[str, Any] = body["result"]
            return result
        failed = body.get("error")
        if isinstance(failed, dict):
            raise MCPError(int(failed["code"]), str(failed["message"]))
        text = _error_of(answer) or f"{self.url} answers {answer.status_code}"
        raise MCPError(types.INTERNAL_ERROR, text)

    def _unreachable(self, error: Exception) -> str:
        reason = str(error) or type(error).__name__
        return f"{self.url} cannot be reached ({reason}): check {URL_VARIABLE} and the service"


async def serve(base_url: str | None, key: str) -> None:
    """Serve the tools of a service until standard input ends.

    Args:
        base_url: the address of the service; None for the one that `outrider up` listens on.

    Raises:
        Unusable: the service cannot be used with the key.
    """
    if not key.isascii():
        raise Unusable(NOT_A_KEY)
    url = (base_url or DEFAULT_URL).rstrip("/").removesuffix(API_PATH) + "/mcp"
    headers = {
        "Authorization": f"Bearer {key.strip()}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "User-Agent": f"outrider-mcp/{__version__}",
    }
    session = os.environ.get(SESSION_VARIABLE)
    if session:
        headers["X-Outrider-Session"] = session
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT) as http:
        service = _Service(http, url)
        await service.check()
        server = await _server(service)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


async def _server(service: _Service) -> Server[Any]:
    """Return a server that passes everything on."""

    async def list_tools(
        _: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        result = await service.request("tools/list", _dumped(params))
        return types.ListToolsResult.model_validate(result)

    async def call_tool(_: _Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            result = await service.request("tools/call", _dumped(params))
        except MCPError as error:  # as a tool error, which the model reads
            text = types.TextContent(type="text", text=error.message)
            return types.CallToolResult(content=[text], is_error=True)
        return types.CallToolResult.model_validate(result)

    async def list_resources(
        _: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        result = await service.request("resources/list", _dumped(params))
        return types.ListResourcesResult.model_validate(result)

    async def list_templates(
        _: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        result = await service.request("resources/templates/list", _dumped(params))
        return types.ListResourceTemplatesResult.model_validate(result)

    async def read_resource(
        _: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        result = await service.request("resources/read", _dumped(params))
        return types.ReadResourceResult.model_validate(result)

    started = await service.request(
        "initialize",
        {
            "protocolVersion": _VERSION,
            "capabilities": {},
            "clientInfo": {"name": "outrider mcp", "version": __version__},
        },
    )
    return Server(
        "outrider",
        version=__version__,
        title="Outrider",
        instructions=started.get("instructions"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


def _dumped(params: Any) -> dict[str, Any]:
    """Return parameters without `_meta`, which belongs to the client's own connection."""
    if params is None:
        return {}
    dumped: dict[str, Any] = params.model_dump(
        by_alias=True, mode="json", exclude_none=True, exclude={"meta"}
    )
    return dumped


def _json(answer: httpx2.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _error_of(answer: httpx2.Response) -> str | None:
    """Return the sentence of an error of the API; None if it is not one."""
    text = _json(answer).get("error")
    return text if isinstance(text, str) else None
