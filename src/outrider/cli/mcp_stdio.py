"""`outrider mcp`: the tools of a service over standard input and output.

Each message is passed on to the service's `/mcp`, and its answer back. The service decides about
everything: the version of the protocol, the tools, their arguments, and what the key may do.
"""

import os
from typing import Any, Final

import anyio
import httpx2
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, jsonrpc_message_adapter

from outrider import __version__
from outrider.contract.errors import OutriderError
from outrider.contract.targets import SESSION_VARIABLE
from outrider.sdk.configuration import API_PATH, DEFAULT_URL, NOT_A_KEY, URL_VARIABLE

_INTERNAL_ERROR: Final = -32603
_TIMEOUT: Final = httpx2.Timeout(10, read=75)
"""Seconds. The longest tools take a minute: a command on a machine, and `wait_agent`."""


class Unusable(OutriderError):
    """The service cannot be used with these settings."""


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
        "User-Agent": f"outrider-mcp/{__version__}",
    }
    session = os.environ.get(SESSION_VARIABLE)
    if session:
        headers["X-Outrider-Session"] = session
    async with httpx2.AsyncClient(headers=headers, timeout=_TIMEOUT) as http:
        await _check(http, url)
        async with (
            stdio_server() as (read, write),
            read,
            write,  # `stdio_server` ends once both are closed
            anyio.create_task_group() as tasks,
        ):

            async def pass_on(message: SessionMessage) -> None:
                answer = await _answer(http, url, message)
                if answer is not None:
                    parsed = jsonrpc_message_adapter.validate_python(answer, by_name=False)
                    await write.send(SessionMessage(parsed))

            async for message in read:
                if isinstance(message, SessionMessage):  # otherwise it is not valid JSON-RPC
                    tasks.start_soon(pass_on, message)
            # The client is gone: a wait that goes on would keep this process for a minute.
            tasks.cancel_scope.cancel()


async def _check(http: httpx2.AsyncClient, url: str) -> None:
    """Check that the service has MCP, and takes the key.

    Raises:
        Unusable: it does not; the text says why.
    """
    try:
        response = await http.get(url)
    except (httpx2.InvalidURL, httpx2.HTTPError, UnicodeError) as error:
        raise Unusable(_unreachable(url, error)) from error
    # The answer to a GET with a valid key. A message would count against the key's limits twice.
    if response.status_code != 405:
        text = _json(response).get("error", f"there is no Outrider ({response.status_code})")
        raise Unusable(f"{url}: {text}")


async def _answer(
    http: httpx2.AsyncClient, url: str, message: SessionMessage
) -> dict[str, Any] | None:
    """Return the service's answer to a message; None if there is none, as to a notification."""
    sent = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    try:
        response = await http.post(url, json=sent)
        body = _json(response)
        text = body.get("error", f"{url} answers {response.status_code}")
    except httpx2.HTTPError as error:
        body, text = {}, _unreachable(url, error)
    if not isinstance(message.message, JSONRPCRequest):
        return None
    if sent["method"] == "initialize" and "result" in body:
        # Required with every request after the handshake.
        http.headers["MCP-Protocol-Version"] = body["result"]["protocolVersion"]
    # An error before the SDK got the message has the API's format, or none.
    if "jsonrpc" in body:
        return {**body, "id": sent["id"]}
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": sent["id"]}
    if sent["method"] == "tools/call":  # as a tool error, which the model reads
        return answer | {
            "result": {"content": [{"type": "text", "text": str(text)}], "isError": True}
        }
    return answer | {"error": {"code": _INTERNAL_ERROR, "message": str(text)}}


def _unreachable(url: str, error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"{url} cannot be reached ({reason}): check {URL_VARIABLE} and the service"


def _json(response: httpx2.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}
