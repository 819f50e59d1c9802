"""The demo agent's side of the Agent Client Protocol: sessions, modes, models and turns."""

import contextlib
import secrets
from collections.abc import Collection
from typing import Any, Final, Literal

from acp import RequestError
from acp.helpers import update_agent_message_text, update_user_message_text
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    SessionMode,
    SessionModeState,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    TextContentBlock,
)

from outrider import __version__
from outrider.demo.commands import run_command
from outrider.demo.session import CancelledTurn, DemoSession

PROTOCOL_VERSION: Final = 1

_MODES: Final = {"ask": "Ask first", "auto": "Do it without asking"}
_MODELS: Final = {"demo-1": "Demo 1", "demo-2": "Demo 2"}
_MAX_TITLE: Final = 60


class DemoAgent:
    """The agent, with any number of sessions."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._sessions: dict[str, DemoSession] = {}

    def on_connect(self, conn: Client) -> None:
        """Use this connection."""
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        """Return what the agent can do."""
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(load_session=True),
            agent_info=Implementation(name="outrider-demo", version=__version__),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        """Begin a session in a directory."""
        session = self._open(secrets.token_hex(8), cwd)
        return NewSessionResponse(
            session_id=session.id, modes=_modes(session), config_options=_options(session)
        )

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        """Continue an earlier session; its messages are sent first."""
        if not session_id.isalnum():
            raise RequestError.invalid_params({"sessionId": "it is no session of this agent"})
        session = self._open(session_id, cwd)
        try:
            await session.load()
        except BaseException:
            del self._sessions[session_id]
            raise
        for number, (role, text) in enumerate(session.messages):
            update = update_user_message_text if role == "user" else update_agent_message_text
            chunk = update(text)
            chunk.message_id = str(number)
            await session.update(chunk)
        if session.messages:
            await session.update(_title(session))
        return LoadSessionResponse(modes=_modes(session), config_options=_options(session))

    async def set_session_mode(
        self, session_id: str, mode_id: str, **_: Any
    ) -> SetSessionModeResponse:
        """Change the mode of a session."""
        _check(mode_id, _MODES)
        self._session(session_id).mode = mode_id
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        """Change the model of a session."""
        _check(config_id, {"model"})
        _check(value, _MODELS)
        session = self._session(session_id)
        session.model = str(value)
        return SetSessionConfigOptionResponse(config_options=_options(session))

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        """Take a turn; its first word says what the agent does."""
        session = self._session(session_id)
        session.begin_turn()
        text = "\n".join(block.text for block in prompt if isinstance(block, TextContentBlock))
        session.messages.append(("user", text))
        if len(session.messages) == 1:
            await session.update(_title(session))
        with contextlib.suppress(RequestError):  # the save at the end of the turn reports it
            await session.save()  # so that a turn that never ends leaves a session to resume
        reason: Literal["end_turn", "cancelled"] = "end_turn"
        try:
            await run_command(session, text)
        except CancelledTurn:
            reason = "cancelled"
        except RequestError:
            await session.save()
            raise
        # Not after a cancelled task: the client is gone, and waiting for it would keep the process.
        await session.save()
        return PromptResponse(stop_reason=reason)

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Interrupt the turn of a session."""
        self._session(session_id).cancel()

    def _open(self, session_id: str, directory: str) -> DemoSession:
        assert self._client is not None, "the connection comes before the first request"
        session = self._sessions[session_id] = DemoSession(self._client, session_id, directory)
        return session

    def _session(self, session_id: str) -> DemoSession:
        try:
            return self._sessions[session_id]
        except KeyError:
            raise RequestError.invalid_params({"sessionId": "it is not open"}) from None


def _title(session: DemoSession) -> SessionInfoUpdate:
    """Return the update that names a session after its first message."""
    title = " ".join(session.messages[0][1].split())[:_MAX_TITLE]
    return SessionInfoUpdate(session_update="session_info_update", title=title)


def _modes(session: DemoSession) -> SessionModeState:
    modes = [SessionMode(id=mode, name=name) for mode, name in _MODES.items()]
    return SessionModeState(current_mode_id=session.mode, available_modes=modes)


def _options(session: DemoSession) -> list[Any]:
    models = [SessionConfigSelectOption(value=id_, name=name) for id_, name in _MODELS.items()]
    return [
        SessionConfigOptionSelect(
            id="model",
            name="Model",
            category="model",
            type="select",
            current_value=session.model,
            options=models,
        )
    ]


def _check(value: object, allowed: Collection[Any]) -> None:
    if value not in allowed:
        raise RequestError.invalid_params({"message": f"it is one of {', '.join(allowed)}"})
