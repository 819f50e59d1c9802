"""Logging in to an agent: recognise that a login is missing, and log in without a person."""

from collections.abc import Mapping
from typing import Any

from acp import RequestError
from acp.schema import EnvVarAuthMethod, InitializeResponse

from outrider.machine.agents.acp.connection import AUTHENTICATION_REQUIRED, AgentConnection
from outrider.machine.agents.acp.content import error_text
from outrider.machine.agents.acp.spec import AcpSpec


class Login:
    """The login methods of one kind of agent that need no person.

    Args:
        environment: the agent's, which may hold a key.
    """

    def __init__(self, spec: AcpSpec, environment: Mapping[str, str]) -> None:
        self._spec = spec
        self._environment = environment

    async def new_session(
        self, connection: AgentConnection, agent: InitializeResponse, directory: str
    ) -> dict[str, Any]:
        """Open a new session; log in first if the agent requires it and a method is usable."""
        try:
            return await connection.new_session(directory)
        except RequestError as error:
            method = self._method(agent) if self.is_required(error) else None
            if method is None:
                raise
        await connection.authenticate(method)
        return await connection.new_session(directory)

    def is_required(self, error: RequestError) -> bool:
        """Return whether an error means that nobody has logged in."""
        pattern = self._spec.login_pattern()
        return error.code == AUTHENTICATION_REQUIRED or (
            pattern is not None and pattern.matches(error_text(error), otherwise=False)
        )

    def error_message(self, error: RequestError) -> str:
        """Return an error in words for a person, with what to do if a login is missing."""
        text = error_text(error)
        if not self.is_required(error):
            return f"{self._spec.display_name}: {text}"
        return f"{self._spec.display_name} is not logged in ({text}): {self._spec.login}"

    def _method(self, agent: InitializeResponse) -> str | None:
        """Return the method that the spec names, or one whose keys are in the environment."""
        methods = agent.auth_methods or []
        if self._spec.authenticate in {method.id for method in methods}:
            return self._spec.authenticate
        for method in methods:
            if isinstance(method, EnvVarAuthMethod) and all(
                variable.optional or variable.name in self._environment for variable in method.vars
            ):
                return method.id
        return None
