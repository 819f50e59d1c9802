"""An agent's life with this daemon: opened, or opened again; gone, or ended.

An agent lives as long as this daemon and no longer, for its pipes end here.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from acp.interfaces import Client as AnyClient

from outrider.contract.errors import ApiError
from outrider.daemon.agents.acp.client import Client
from outrider.daemon.agents.acp.opening import Begin, Login, opening_again
from outrider.daemon.agents.acp.process import AgentProcess
from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.acp.running import END_GRACE, Running
from outrider.daemon.agents.acp.terminals import Terminals
from outrider.daemon.agents.failure import start_failure
from outrider.daemon.session_record import SessionRecord

SESSION_KEY: Final = "acp_session"
"""Where a session's record keeps the agent's own id of it."""

_GIVE_UP: Final = 2.5


class Lifetime:
    """Starts the agent and notices its end.

    Args:
        terminals: what ends with the agent.
        client: carries out what the agent asks for.
        on_update: gets the parameters of every session update, in order.
        on_change: called when the agent is gone, or its session has been opened again.

    Attributes:
        running: the agent's process, None before the first.
        gone: why it can be told nothing any more, for a person; None while it can.
    """

    def __init__(
        self,
        file: AcpFile,
        record: SessionRecord,
        environment: Mapping[str, str],
        *,
        login: Login,
        terminals: Terminals,
        client: Client,
        on_update: Callable[[Any], None],
        on_change: Callable[[], None],
    ) -> None:
        self._file = file
        self._record = record
        self._environment = environment
        self._login = login
        self._terminals = terminals
        self._client = client
        self._on_update = on_update
        self._on_change = on_change
        self._opening: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.running: Running | None = None
        self.gone: str | None = None

    @property
    def session(self) -> str | None:
        """The agent's own id of the session, None while it has given none."""
        return self._record.adapter_state.get(SESSION_KEY)

    @property
    def is_opening(self) -> bool:
        """Whether an earlier session is being opened again."""
        return self._opening is not None

    async def open(self, argv: Sequence[str]) -> dict[str, Any]:
        """Start the agent with a new session; return its answer.

        Raises:
            ApiError: 500, it did not get ready.
        """
        answer = await self._open(argv, self._login.new_session)
        self._record.adapter_state[SESSION_KEY] = answer["sessionId"]
        return answer

    def reopen(self, argv: Sequence[str], opened: Callable[[dict[str, Any]], None]) -> None:
        """Begin to open the earlier session again; `opened` gets the agent's answer."""
        work = self._reopen(argv, opened)
        self._opening = asyncio.create_task(work, name=f"restore {self._record.id}")

    async def ready(self) -> tuple[Running, str]:
        """Return the agent and its session, once it has been opened.

        Raises:
            ApiError: 500, the agent is gone.
        """
        if self._opening is not None:
            await asyncio.wait({self._opening})  # each of its steps has a bound
        if self.gone is not None or self.running is None:
            why = (self.gone or "The agent has ended").rstrip(".")
            raise ApiError(500, f"{why}. Launch it again")
        assert self.session is not None
        return self.running, self.session

    async def has_ended(self) -> bool:
        """Return whether the agent has ended; it is `gone` then."""
        assert self.running is not None
        if not await self.running.has_ended():
            return False
        if self._opening is None:  # else the opening tells it
            self.gone = self.running.last_words()
        return True

    async def end(self) -> None:
        """End the agent, then whatever it left; harmless if it is gone."""
        opening, self._opening = self._opening, None
        if opening is not None and opening is not asyncio.current_task():
            opening.cancel()
            await asyncio.wait({opening}, timeout=_GIVE_UP)
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching}, timeout=END_GRACE)
        await self._terminals.close()
        if self.running is not None:
            await self.running.end()

    async def _reopen(self, argv: Sequence[str], opened: Callable[[dict[str, Any]], None]) -> None:
        assert self.session is not None
        try:
            begin = opening_again(self.session, self._file.display_name)
            opened(await self._open(argv, begin))
        except ApiError as error:
            self.gone = start_failure(self._file, error).message
            await self.end()
        finally:
            self._opening = None
        self._on_change()

    async def _open(self, argv: Sequence[str], begin: Begin) -> dict[str, Any]:
        name, path = self._file.display_name, self._record.path
        try:
            process = await AgentProcess.start(argv, path, self._environment)
        except OSError as error:
            raise ApiError(500, f"{name} could not be started: {error.strerror}") from error
        client = cast("AnyClient", self._client)
        self.running = running = Running(self._file, process, client, self._on_update)
        self._watching = asyncio.create_task(self._watch(running), name=f"watch {self._record.id}")
        return await running.open(begin, path, self._login.refusal)

    async def _watch(self, running: Running) -> None:
        """Wait for the agent's end, and clear up behind it."""
        await running.ended()
        if self._opening is None:
            self.gone = running.last_words()
        await self._terminals.close()
        await running.clear_up()
        self._on_change()
