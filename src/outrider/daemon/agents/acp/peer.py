"""What is said to an agent, over the official SDK: each request with a bound on its answer."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from acp import PROTOCOL_VERSION, RequestError
from acp.client.router import build_client_router
from acp.connection import Connection
from acp.interfaces import Client
from acp.meta import AGENT_METHODS
from acp.schema import (
    AuthenticateRequest,
    CancelNotification,
    ClientCapabilities,
    FileSystemCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    LoadSessionRequest,
    NewSessionRequest,
    PromptRequest,
    PromptResponse,
    ResumeSessionRequest,
    SetSessionConfigOptionBooleanRequest,
    SetSessionConfigOptionSelectRequest,
    SetSessionModeRequest,
)
from acp.utils import serialize_params
from pydantic import BaseModel, ValidationError

from outrider import __version__
from outrider.daemon.agents.acp.content import Block
from outrider.daemon.agents.acp.controls import Setting, Value
from outrider.daemon.agents.acp.process import AgentProcess
from outrider.daemon.agents.acp.transport import LineTransport

ANSWER_TIMEOUT: Final = 30.0
"""Seconds for an answer to anything but a prompt."""

AUTHENTICATION_REQUIRED: Final = -32000


class Peer:
    """The agent at the other end of a process's pipes.

    Every request raises RequestError where the agent refuses it, ConnectionError where it is
    gone, and TimeoutError where it does not answer.

    Args:
        process: the agent.
        client: carries out what the agent asks for.
        on_update: gets the parameters of every session update, in order.
    """

    def __init__(
        self, process: AgentProcess, client: Client, on_update: Callable[[Any], None]
    ) -> None:
        self.transport = LineTransport(process.reader, process.writer, on_update)
        self._connection = Connection(build_client_router(client), self.transport)

    async def close(self) -> None:
        """Stop listening, and give up every request."""
        await self._connection.close()

    async def initialize(self) -> InitializeResponse:
        """Agree on a version and on what either side can do."""
        request = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
                terminal=True,
            ),
            client_info=Implementation(name="outrider", title="Outrider", version=__version__),
        )
        answer = await self._ask("initialize", request)
        try:
            return InitializeResponse.model_validate(answer)
        except ValidationError as error:
            raise RequestError(-32603, f"it answered `initialize` wrongly: {error}") from error

    async def authenticate(self, method_id: str) -> None:
        """Log in by one of the agent's methods."""
        await self._ask("authenticate", AuthenticateRequest(method_id=method_id))

    async def new_session(self, directory: str) -> dict[str, Any]:
        """Open a session and return the agent's answer, which has `sessionId`."""
        request = NewSessionRequest(cwd=directory, mcp_servers=[])
        answer = await self._ask("session_new", request)
        if not isinstance(answer.get("sessionId"), str):
            raise RequestError(-32603, "it opened a session without an id")
        return answer

    async def load_session(self, session_id: str, directory: str) -> dict[str, Any]:
        """Open an earlier session; the agent tells its chat anew."""
        request = LoadSessionRequest(session_id=session_id, cwd=directory, mcp_servers=[])
        return await self._ask("session_load", request)

    async def resume_session(self, session_id: str, directory: str) -> dict[str, Any]:
        """Open an earlier session without telling its chat."""
        request = ResumeSessionRequest(session_id=session_id, cwd=directory, mcp_servers=[])
        return await self._ask("session_resume", request)

    async def prompt(self, session_id: str, blocks: list[Block]) -> PromptResponse:
        """Give the agent a message; returns at the end of its turn, which has no bound."""
        request = PromptRequest(session_id=session_id, prompt=blocks)
        answer = await self._connection.send_request(
            AGENT_METHODS["session_prompt"], serialize_params(request)
        )
        try:
            return PromptResponse.model_validate(answer)
        except ValidationError:
            return PromptResponse(stop_reason="end_turn")  # the turn is over, whatever it says

    async def cancel(self, session_id: str) -> None:
        """Ask the agent to end its turn; it answers by the end of the prompt, or never."""
        await self._connection.send_notification(
            AGENT_METHODS["session_cancel"],
            serialize_params(CancelNotification(session_id=session_id)),
        )

    async def change(self, session_id: str, setting: Setting, value: Value) -> dict[str, Any]:
        """Change a setting and return the agent's answer."""
        name = setting.control.id
        if setting.way == "mode":
            mode = SetSessionModeRequest(session_id=session_id, mode_id=str(value))
            return await self._ask("session_set_mode", mode)
        if setting.way == "model":  # no longer in the protocol, nor in the SDK
            parameters = {"sessionId": session_id, "modelId": value}
            return await self._send("session/set_model", parameters)
        option: BaseModel = (
            SetSessionConfigOptionBooleanRequest(
                config_id=name, session_id=session_id, type="boolean", value=value
            )
            if isinstance(value, bool)
            else SetSessionConfigOptionSelectRequest(
                config_id=name, session_id=session_id, value=value
            )
        )
        return await self._ask("session_set_config_option", option)

    async def _ask(self, name: str, request: BaseModel) -> dict[str, Any]:
        return await self._send(AGENT_METHODS[name], serialize_params(request))

    async def _send(self, method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            answer = await self._connection.send_request(method, dict(parameters))
        return answer if isinstance(answer, dict) else {}
