"""How a session is opened: with a login where the agent asks for one, or once more."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from acp import RequestError
from acp.schema import EnvVarAuthMethod, InitializeResponse

from outrider.contract.errors import ApiError
from outrider.daemon.agents.acp.content import error_text
from outrider.daemon.agents.acp.peer import AUTHENTICATION_REQUIRED, Peer
from outrider.daemon.agents.acp.provider_file import AcpFile

Begin = Callable[[Peer, InitializeResponse, str], Awaitable[dict[str, Any]]]
"""Opens a session in a directory and returns the agent's answer."""


class Login:
    """What a missing login looks like, and the ways in that need nobody.

    Args:
        environment: the agent's, in which a key may stand.
    """

    def __init__(self, file: AcpFile, environment: Mapping[str, str]) -> None:
        self._file = file
        self._environment = environment

    async def new_session(
        self, peer: Peer, agent: InitializeResponse, directory: str
    ) -> dict[str, Any]:
        """Open a new session; log in first where the agent asks for it and nobody is needed."""
        try:
            return await peer.new_session(directory)
        except RequestError as error:
            method = self._method(agent) if self.needed(error) else None
            if method is None:
                raise
        await peer.authenticate(method)
        return await peer.new_session(directory)

    def needed(self, error: RequestError) -> bool:
        """Return whether an error means that nobody has logged in."""
        pattern = self._file.login_pattern()
        return error.code == AUTHENTICATION_REQUIRED or (
            pattern is not None and pattern.search(error_text(error)) is not None
        )

    def refusal(self, error: RequestError) -> str:
        """Return what an error says to a person, and what to do where a login is missing."""
        text = error_text(error)
        if not self.needed(error):
            return f"{self._file.display_name}: {text}"
        return f"{self._file.display_name} is not logged in ({text}): {self._file.login}"

    def _method(self, agent: InitializeResponse) -> str | None:
        """Return the way to log in that needs nobody: the file's, or a key in the environment."""
        methods = agent.auth_methods or []
        if self._file.authenticate in {method.id for method in methods}:
            return self._file.authenticate
        for method in methods:
            if isinstance(method, EnvVarAuthMethod) and all(
                variable.optional or variable.name in self._environment for variable in method.vars
            ):
                return method.id
        return None


def cannot_reopen(name: str) -> str:
    """Return why the session of an agent that knows no way back is over, for a person."""
    return f"The machine agent was restarted, and {name} cannot open an earlier session again"


def opening_again(session: str, name: str) -> Begin:
    """Return what opens an earlier session: by resuming it, else by loading it.

    It raises ApiError, 500, where the agent offers neither. `name` is the agent's, for people.
    """

    async def begin(peer: Peer, agent: InitializeResponse, directory: str) -> dict[str, Any]:
        able = agent.agent_capabilities
        sessions = None if able is None else able.session_capabilities
        loads = able is not None and bool(able.load_session)
        if sessions is not None and sessions.resume is not None:
            try:
                return await peer.resume_session(session, directory)
            except RequestError:
                if not loads:
                    raise
        if loads:
            return await peer.load_session(session, directory)
        raise ApiError(500, cannot_reopen(name))

    return begin
