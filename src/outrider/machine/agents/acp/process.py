"""The process of an agent: started, its session opened (or opened again), watched, and ended.

    AgentLifecycle ─ at most one at a time ─▶ RunningAgent (pipes, stderr)
                                                   └─▶ AgentConnection (JSON-RPC)

An agent lives no longer than this daemon, because its pipes end here. What outlives the daemon is
the agent's own id of the session, in the session's record, by which a new process opens it again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from subprocess import PIPE
from typing import Any, Final, cast

import psutil
from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client as SdkClient
from acp.schema import InitializeResponse

from outrider.contract.errors import ApiError
from outrider.contract.resources import EndReason
from outrider.machine.agents.acp.client import Client
from outrider.machine.agents.acp.connection import AgentConnection
from outrider.machine.agents.acp.login import Login
from outrider.machine.agents.acp.output_tail import OutputTail
from outrider.machine.agents.acp.spec import (
    AcpSpec,
    AcpState,
    Timeouts,
    cannot_reopen_message,
)
from outrider.machine.agents.acp.terminals import AgentTerminals
from outrider.machine.agents.failure import NOTHING, output_end, start_failure
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.system.child import Child, start

STDERR_KEPT: Final = 16 * 1024
"""Bytes of an agent's standard error that are kept: the newest."""

END_GRACE: Final = 1.5
"""Seconds that an agent has to exit by itself once its standard input is closed."""

LAST_READ_TIMEOUT: Final = 0.5
"""Seconds to read what an agent wrote just before it exited."""

_CHUNK: Final = 64 * 1024
_STDERR_PAUSE: Final = 0.002
_TERMINATE_GRACE: Final = 1.0
_KILL_TIMEOUT: Final = 5.0
_CANCEL_TIMEOUT: Final = 2.5

OpenSession = Callable[[AgentConnection, InitializeResponse, str], Awaitable[dict[str, Any]]]
"""Opens a session in a directory and returns the agent's answer."""


class RunningAgent:
    """One process of an agent, the leader of a process session of its own, and its connection.

    Args:
        child: the process, with pipes to and from it; `start_agent` makes it.
        client: carries out the agent's requests.
        on_update: gets the parameters of every session update, in order.

    Attributes:
        connection: sends requests to the agent.
        agent: what the agent says about itself and its capabilities, None before `open`.
    """

    def __init__(
        self,
        spec: AcpSpec,
        child: Child,
        client: SdkClient,
        on_update: Callable[[Any], None],
        *,
        timeouts: Timeouts,
    ) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._spec = spec
        self._process = child
        self.connection = AgentConnection(
            child.stdout, child.stdin, client, on_update, timeouts=timeouts
        )
        self.agent: InitializeResponse | None = None
        self._stdin = child.stdin
        self._stderr_tail = OutputTail(STDERR_KEPT)
        self._stderr_task = asyncio.create_task(
            self._read_stderr(child.stderr), name=f"stderr of {child.pid}"
        )

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        """Read standard error, with pauses: a flood of it must not occupy the event loop."""
        while data := await stderr.read(_CHUNK):
            self._stderr_tail.add(data)
            await asyncio.sleep(_STDERR_PAUSE)

    async def open(
        self,
        open_session: OpenSession,
        directory: str,
        error_message: Callable[[RequestError], str],
    ) -> dict[str, Any]:
        """Initialize the agent, open a session and return the agent's answer.

        All of it must happen within the provider's `ready_timeout`. `error_message` returns an
        error of the agent in words for a person.

        Raises:
            ApiError: 500, the agent did not become ready.
        """
        name, limit = self._spec.display_name, self._spec.ready_timeout
        step = "initialize"
        try:
            async with asyncio.timeout(limit):
                self.agent = await self.connection.initialize()
                if self.agent.protocol_version != PROTOCOL_VERSION:
                    raise ApiError(
                        500,
                        f"{name} speaks version {self.agent.protocol_version} of the protocol, "
                        f"not {PROTOCOL_VERSION}: install another version of it",
                    )
                step = "the opening of a session"
                return await open_session(self.connection, self.agent, directory)
        except RequestError as error:
            stderr = self._stderr_end()
            suffix = "" if stderr == NOTHING else f"; its error output ends with:\n{stderr}"
            raise ApiError(500, error_message(error) + suffix) from error
        except ConnectionError as error:
            await self.has_exited()
            raise ApiError(500, self.exit_message()) from error
        except TimeoutError as error:
            raise ApiError(
                500,
                f"{name} did not answer {step} within {limit:.0f} s; its error output ends "
                f"with:\n{self._stderr_end()}",
            ) from error

    @property
    def reopens(self) -> bool:
        """Whether the agent says that it can open an earlier session again."""
        able = None if self.agent is None else self.agent.agent_capabilities
        sessions = None if able is None else able.session_capabilities
        resumes = sessions is not None and sessions.resume is not None
        return resumes or (able is not None and bool(able.load_session))

    @property
    def exit_code(self) -> int | None:
        """Its exit code: negative for a signal, None while it runs."""
        return self._process.returncode

    async def wait(self) -> None:
        """Return once the process has exited, and what it wrote has been read."""
        await self._process.wait()
        with contextlib.suppress(TimeoutError):  # a child of it may hold its pipes open
            async with asyncio.timeout(LAST_READ_TIMEOUT):
                await self.connection.transport.finished.wait()

    async def has_exited(self, seconds: float = END_GRACE) -> bool:
        """Return whether the process has exited, or does within so many seconds.

        Its pipes may be closed a moment before it exits.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self.exit_code is not None

    def exit_message(self) -> str:
        """Return how the process exited, for a person."""
        code = self.exit_code
        how = "" if code is None else f" with code {code}"
        if code is not None and code < 0:
            how = f" by a signal ({-code})"
        name, stderr = self._spec.display_name, self._stderr_end()
        return f"{name} has ended{how}; its error output ends with:\n{stderr}"

    async def clean_up(self) -> None:
        """Close the connection to an agent that has exited, and kill what it left running."""
        await self.connection.close()
        await self._process.group.kill()

    async def end(self, grace: float = END_GRACE) -> None:
        """End it and every process that it started. Idempotent.

        Its standard input is closed first, upon which a well-behaved agent exits. SIGTERM follows
        after `grace` seconds, and SIGKILL after `_TERMINATE_GRACE` more. What an agent that has
        exited left running gets no such time. Returns when none runs, or 5 s after SIGKILL.
        A cancelled call kills at once: the daemon may be about to stop.
        """
        members: list[psutil.Process] = []
        group = self._process.group
        try:
            # Descendants are collected while the leader runs: those that left its session can no
            # longer be found once it has exited.
            members = await group.members()
            self._stdin.close()
            exited = await self.has_exited(grace)
            await group.end(0 if exited else _TERMINATE_GRACE, members)
            await self.has_exited(_KILL_TIMEOUT)
        except asyncio.CancelledError:
            await group.kill(members)
            raise
        finally:
            self._stderr_task.cancel()
            self._process.close()
        await self.connection.close()

    def evidence(self) -> dict[str, Any]:
        """Return what a debug bundle shows of it (JSON values)."""
        info = None if self.agent is None else self.agent.agent_info
        return {
            "agent": None if info is None else f"{info.name} {info.version}",
            "protocolVersion": None if self.agent is None else self.agent.protocol_version,
            "unreadableOutput": self.connection.transport.unreadable.text(),
            "stderr": self._stderr_tail.text(),
            "pid": self._process.pid,
            "exitCode": self.exit_code,
        }

    def _stderr_end(self) -> str:
        return output_end(self._stderr_tail.text())


async def start_agent(argv: Sequence[str], directory: str, environment: Mapping[str, str]) -> Child:
    """Start a program with pipes to and from it; leave nothing behind if this is cancelled.

    Raises:
        OSError: it cannot be started.
    """
    return await start(
        argv, cwd=directory, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=_CHUNK
    )


class AgentLifecycle:
    """Starts the agent, opens its session, and detects and reports its end.

    Args:
        terminals: closed when the agent ends.
        client: carries out the agent's requests.
        on_update: gets the parameters of every session update, in order.
        on_change: called when the agent has ended, or its session has been opened again.

    Attributes:
        running: the agent's process, None before the first.
        end_message: why the agent can no longer be used, for a person; None while it can.
        end_reason: the same in the words of the API.
    """

    def __init__(
        self,
        spec: AcpSpec,
        record: SessionRecord,
        environment: Mapping[str, str],
        *,
        login: Login,
        terminals: AgentTerminals,
        client: Client,
        on_update: Callable[[Any], None],
        on_change: Callable[[], None],
        timeouts: Timeouts,
    ) -> None:
        self._timeouts = timeouts
        self._spec = spec
        self._record = record
        self._state = AcpState(record)
        self._environment = environment
        self._login = login
        self._terminals = terminals
        self._client = client
        self._on_update = on_update
        self._on_change = on_change
        self._reopen_task: asyncio.Task[None] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self.running: RunningAgent | None = None
        self.end_message: str | None = None
        self.end_reason: EndReason = "crashed"

    @property
    def session(self) -> str | None:
        """The agent's own id of the session, None before the session has been opened."""
        return self._state.session

    @property
    def is_reopening(self) -> bool:
        """Whether an earlier session is being opened again."""
        return self._reopen_task is not None

    async def open(self, argv: Sequence[str]) -> dict[str, Any]:
        """Start the agent with a new session; return its answer.

        Raises:
            ApiError: 500, it did not become ready.
        """
        answer = await self._open(argv, self._login.new_session)
        self._state.session = answer["sessionId"]
        assert self.running is not None
        if not self.running.reopens:
            self._state.reopens = "no"
        return answer

    def reopen(self, argv: Sequence[str], opened: Callable[[dict[str, Any]], None]) -> None:
        """Begin to open the earlier session again; `opened` gets the agent's answer."""
        work = self._reopen(argv, opened)
        self._reopen_task = asyncio.create_task(work, name=f"restore {self._record.id}")

    async def ready(self) -> tuple[RunningAgent, str]:
        """Return the agent and its session id, once the session is open.

        Raises:
            ApiError: 500, the agent has ended.
        """
        # Not `await task`: this caller's cancellation must not cancel the reopening.
        if self._reopen_task is not None:
            await asyncio.wait({self._reopen_task})  # each of its steps has a bound
        if self.end_message is not None or self.running is None:
            reason = (self.end_message or "The agent has ended").rstrip(".")
            raise ApiError(500, f"{reason}. Launch it again")
        assert self.session is not None
        return self.running, self.session

    async def has_ended(self) -> bool:
        """Return whether the agent has ended; `end_message` is set then."""
        assert self.running is not None
        if not await self.running.has_exited():
            return False
        if self._reopen_task is None:  # otherwise the reopening reports a better reason
            self._set_exited(self.running)
        return True

    def set_lost(self, reason: str) -> None:
        """Set that the agent ended with an earlier daemon and does not come back."""
        self.end_message, self.end_reason = reason, "machine_restarted"

    def _set_exited(self, running: RunningAgent) -> None:
        self.end_message = running.exit_message()
        self.end_reason = "exited" if running.exit_code == 0 else "crashed"

    async def end(self) -> None:
        """End the agent, then everything that it left running. Idempotent.

        The watch task stops before the process is ended, so that an intended end is not
        reported as a crash.
        """
        # Order: what starts processes first, then what reports their end, then the process.
        try:
            reopening, self._reopen_task = self._reopen_task, None
            if reopening is not None and reopening is not asyncio.current_task():
                reopening.cancel()
                await asyncio.wait({reopening}, timeout=_CANCEL_TIMEOUT)
            if self._watch_task is not None:
                self._watch_task.cancel()
                await asyncio.wait({self._watch_task}, timeout=END_GRACE)
            await self._terminals.close()
        finally:
            if self.running is not None:
                await self.running.end()

    async def _reopen(self, argv: Sequence[str], opened: Callable[[dict[str, Any]], None]) -> None:
        assert self.session is not None
        try:
            open_session = _resume_or_load(self.session, self._spec.display_name)
            opened(await self._open(argv, open_session))
        except ApiError as error:
            self.set_lost(start_failure(self._spec, error).message)
            await self.end()
        finally:
            self._reopen_task = None
        self._on_change()

    async def _open(self, argv: Sequence[str], open_session: OpenSession) -> dict[str, Any]:
        name, path = self._spec.display_name, self._record.path
        try:
            child = await start_agent(argv, path, self._environment)
        except OSError as error:
            raise ApiError(500, f"{name} could not be started: {error.strerror}") from error
        client = cast("SdkClient", self._client)
        self.running = running = RunningAgent(
            self._spec, child, client, self._on_update, timeouts=self._timeouts
        )
        self._watch_task = asyncio.create_task(
            self._watch(running), name=f"watch {self._record.id}"
        )
        return await running.open(open_session, path, self._login.error_message)

    async def _watch(self, running: RunningAgent) -> None:
        """Wait until the agent exits, and clean up after it."""
        await running.wait()
        # While a session is reopened, its failure says more than the end of the process.
        if self._reopen_task is None:
            self._set_exited(running)
        await self._terminals.close()
        await running.clean_up()
        self._on_change()


def _resume_or_load(session: str, name: str) -> OpenSession:
    """Return what opens an earlier session: by resuming it, else by loading it.

    It raises ApiError, 500, if the agent supports neither. `name` is the agent's, for people.
    """

    async def open_session(
        connection: AgentConnection, agent: InitializeResponse, directory: str
    ) -> dict[str, Any]:
        able = agent.agent_capabilities
        sessions = None if able is None else able.session_capabilities
        loads = able is not None and bool(able.load_session)
        if sessions is not None and sessions.resume is not None:
            try:
                return await connection.resume_session(session, directory)
            except RequestError:
                if not loads:
                    raise
        if loads:
            return await connection.load_session(session, directory)
        raise ApiError(500, cannot_reopen_message(name))

    return open_session
