"""A client of `/mcp`: the SDK's own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from tests.rig.waiting import TIMEOUT


@asynccontextmanager
async def mcp_client(
    url: str, key: str, *, mode: str = "auto", headers: dict[str, str] | None = None
) -> AsyncIterator[Client]:
    """Connect to the service at a base URL with a key."""
    sent = {"Authorization": f"Bearer {key}", **(headers or {})}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=2 * TIMEOUT, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def result_of(answer: CallToolResult) -> Any:
    """Return the result of a tool call that succeeded."""
    assert not answer.is_error, answer.content
    return answer.structured_content


def error_of(answer: CallToolResult) -> str:
    """Return the text of a tool error."""
    assert answer.is_error
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return content.text


def message(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a request as a client without the SDK would send it."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


ACCEPT = {"Accept": "application/json, text/event-stream"}
