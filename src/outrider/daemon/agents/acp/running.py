"""An agent that runs: its process and the peer at its pipes, from its start to its end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client
from acp.schema import InitializeResponse

from outrider.contract.errors import ApiError
from outrider.daemon.agents.acp.opening import Begin
from outrider.daemon.agents.acp.peer import Peer
from outrider.daemon.agents.acp.process import AgentProcess
from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.failure import NOTHING, output_end

END_GRACE: Final = 1.5
"""Seconds that an agent has to end by itself once its input is closed."""

LAST_WORDS: Final = 0.5
"""Seconds for what an agent wrote just before its end."""


class Running:
    """One process of an agent, from its start to its end.

    Args:
        client: carries out what the agent asks for.
        on_update: gets the parameters of every session update, in order.

    Attributes:
        peer: what speaks to it.
        agent: what it has told of itself, None before `open`.
    """

    def __init__(
        self, file: AcpFile, process: AgentProcess, client: Client, on_update: Callable[[Any], None]
    ) -> None:
        self._file = file
        self._process = process
        self.peer = Peer(process, client, on_update)
        self.agent: InitializeResponse | None = None

    async def open(
        self, begin: Begin, directory: str, refusal: Callable[[RequestError], str]
    ) -> dict[str, Any]:
        """Let `begin` open a session and return the agent's answer; every step has a bound.

        `refusal` returns what an error of the agent says to a person.

        Raises:
            ApiError: 500, the agent did not get ready.
        """
        name, limit = self._file.display_name, self._file.ready_timeout
        step = "initialize"
        try:
            async with asyncio.timeout(limit):
                self.agent = await self.peer.initialize()
                if self.agent.protocol_version != PROTOCOL_VERSION:
                    raise ApiError(
                        500,
                        f"{name} speaks version {self.agent.protocol_version} of the protocol, "
                        f"not {PROTOCOL_VERSION}: install another version of it",
                    )
                step = "the opening of a session"
                return await begin(self.peer, self.agent, directory)
        except RequestError as error:
            complaints = self._complaints()
            said = "" if complaints == NOTHING else f"; its error output ends with:\n{complaints}"
            raise ApiError(500, refusal(error) + said) from error
        except ConnectionError as error:
            await self.has_ended()
            raise ApiError(500, self.last_words()) from error
        except TimeoutError as error:
            raise ApiError(
                500,
                f"{name} did not answer {step} within {limit:.0f} s; its error output ends "
                f"with:\n{self._complaints()}",
            ) from error

    async def ended(self) -> None:
        """Return once the process has ended, and what it wrote has been read."""
        await self._process.ended()
        with contextlib.suppress(TimeoutError):  # a child that it left may hold its pipes
            async with asyncio.timeout(LAST_WORDS):
                await self.peer.transport.finished.wait()

    async def has_ended(self) -> bool:
        """Return whether it has ended; the end of its pipes may be seen before its own."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_GRACE):
                await self._process.ended()
        return self._process.exit_code is not None

    def last_words(self) -> str:
        """Return how it ended, for a person."""
        code = self._process.exit_code
        how = "" if code is None else f" with code {code}"
        if code is not None and code < 0:
            how = f" by a signal ({-code})"
        name, complaints = self._file.display_name, self._complaints()
        return f"{name} has ended{how}; its error output ends with:\n{complaints}"

    async def clear_up(self) -> None:
        """Kill what is left of an agent that has ended."""
        await self.peer.close()
        await self._process.sweep()

    async def end(self) -> None:
        """End it with all that it started; harmless if it is gone."""
        await self._process.end(END_GRACE)
        await self.peer.close()

    def evidence(self) -> dict[str, Any]:
        """Return what a debug bundle shows of it (JSON values)."""
        info = None if self.agent is None else self.agent.agent_info
        return {
            "agent": None if info is None else f"{info.name} {info.version}",
            "protocolVersion": None if self.agent is None else self.agent.protocol_version,
            "rubbish": self.peer.transport.rubbish.text(),
            "stderr": self._process.complaints.text(),
            "pid": self._process.pid,
            "exitCode": self._process.exit_code,
        }

    def _complaints(self) -> str:
        return output_end(self._process.complaints.text())
