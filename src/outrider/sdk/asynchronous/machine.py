"""One machine: launch agents on it, run commands, see its sessions."""

from collections.abc import Mapping
from typing import Any

from outrider.contract.commands import (
    NewWorktree,
    OpenTerminal,
    Picture,
    Stopped,
    TerminalClosed,
    TerminalOutput,
)
from outrider.contract.outcomes import Done
from outrider.contract.resources import (
    CliEntry,
    Daemon,
    DaemonStatus,
    IdeEntry,
    Session,
    SessionState,
)
from outrider.sdk import operations
from outrider.sdk.asynchronous.agent import AsyncAgent
from outrider.sdk.asynchronous.transport import AsyncTransport
from outrider.sdk.decoding import converted


class AsyncMachine:
    """A machine of the account. Its fields are as they were when it was read.

    Those that programs often need are properties; a new field of the API is in `daemon` at once.

    Attributes:
        daemon: all fields as the API has them.
    """

    def __init__(self, transport: AsyncTransport, daemon: Daemon) -> None:
        self.daemon = daemon
        self._transport = transport

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.nickname!r} {self.id}>"

    @property
    def id(self) -> str:
        """The machine's id."""
        return self.daemon.id

    @property
    def nickname(self) -> str:
        """What its user calls the machine."""
        return self.daemon.nickname

    @property
    def hostname(self) -> str:
        """The machine's name in its network."""
        return self.daemon.hostname

    @property
    def platform(self) -> str:
        """The operating system: `linux` or `darwin`, for example."""
        return self.daemon.platform

    @property
    def version(self) -> str:
        """The version of the machine agent."""
        return self.daemon.version

    @property
    def connected(self) -> bool:
        """Whether it was connected when it was read."""
        return self.daemon.connected is not False  # absent in the list of connected machines

    @property
    def clis(self) -> list[CliEntry]:
        """The running terminal agents, one for each type."""
        return self.daemon.clis

    @property
    def acps(self) -> list[CliEntry]:
        """The running ACP agents, one for each type."""
        return self.daemon.acps

    @property
    def ides(self) -> list[IdeEntry]:
        """The running IDEs, one for each type."""
        return self.daemon.ides

    async def status(self) -> DaemonStatus:
        """Read the machine's present state: hardware, sessions, what it can launch."""
        return await self._send(operations.MACHINE_STATUS)

    async def launch(
        self,
        type: str,  # noqa: A002  # the API's name
        *,
        dir: str | None = None,  # noqa: A002  # the API's name
        model: str | None = None,
        resume: str | None = None,
        worktree: NewWorktree | str | None = None,
    ) -> AsyncAgent:
        """Start an agent or IDE, and return once it is ready for a message.

        Args:
            type: the type, such as `claude-code`: one of `status().available_providers` that is
                `installed`.
            dir: the directory on the machine that it works in, absolute or beginning with `~`; the
                home directory by default.
            model: the model, by the agent's own name for it; the agent's default without it.
            resume: the id of an ended session of this type to continue, with its chat, in its
                directory; then `dir`, `model` and `worktree` are not given.
            worktree: a branch: the session gets a git worktree of the repository at `dir`, with
                this branch checked out. A new branch begins at `HEAD`, with
                `NewWorktree(branch=…, base=…)` at the commit, branch or tag `base`.

        Raises:
            ApiError: 400, the agent is not installed, `dir` does not exist, or is in no repository
                although there is a `worktree`.
            Conflict: `NOT_RESUMABLE`, with the reason.
        """
        # A word is the usual case; only a branch that begins elsewhere needs the struct.
        branch = NewWorktree(branch=worktree) if isinstance(worktree, str) else worktree
        body = {"type": type, "dir": dir, "model": model, "resume": resume, "worktree": branch}
        launched = await self._send(operations.LAUNCH, body=body)
        return AsyncAgent(
            self._transport, launched.session_target_id, type=launched.type, launched=launched
        )

    async def stop(
        self,
        type: str,  # noqa: A002  # the API's name
        *,
        session_id: str | None = None,
        target: str | None = None,
        dir: str | None = None,  # noqa: A002  # the API's name
        remove_worktree: bool = False,
    ) -> Stopped:
        """Stop a session of a type. Of several, the session, target or directory says which.

        Args:
            remove_worktree: whether to remove the session's git worktree too.

        Raises:
            Conflict: `WORKTREE_DIRTY`: it has changes, and nothing was done.
        """
        body = {
            "type": type,
            "sessionId": session_id,
            "target": target,
            "dir": dir,
            "removeWorktree": remove_worktree or None,
        }
        return await self._send(operations.STOP, body=body)

    async def run(
        self, command: str, *, cwd: str | None = None, name: str | None = None
    ) -> TerminalOutput:
        """Run a shell command, and return its output and exit code.

        Args:
            cwd: the directory to run it in; the home directory by default.
            name: a terminal that lives on, with its directory and variables. Without it, a new one.

        Raises:
            CommandTimeout: it took longer than the service waits (60 seconds by default).
        """
        body = {"command": command, "cwd": cwd, "name": name}
        return await self._send(operations.RUN, body=body)

    async def terminals(self) -> list[OpenTerminal]:
        """Return the named terminals that are open."""
        return (await self._send(operations.LIST_TERMINALS)).terminals

    async def close_terminal(self, name: str) -> TerminalClosed:
        """Close a named terminal with all that runs in it."""
        return await self._send(operations.CLOSE_TERMINAL, name=name)

    async def sessions(
        self,
        *,
        state: SessionState | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> list[Session]:
        """Return the machine's sessions, the newest first; as `client.sessions.list`."""
        query = {"state": state, "limit": limit, "before": before}
        return (await self._send(operations.MACHINE_SESSIONS, query=query)).sessions

    async def command(self, type: str, payload: Mapping[str, Any]) -> dict[str, Any]:  # noqa: A002
        """Send one of the seven public commands, and return its result as it came.

        Args:
            type: such as `screenshot`.
            payload: the command's fields, in camelCase as in the API.
        """
        body = {"type": type, "payload": payload}
        return await self._send(operations.COMMAND, body=body)

    async def screenshot(self, target: str | None = None, *, width: int | None = None) -> Picture:
        """Take a picture of an IDE.

        Args:
            target: the target id of the IDE; the session that was used last by default.
            width: the width of the picture in pixels.
        """
        payload = {"target": target, "width": width}
        present = {name: value for name, value in payload.items() if value is not None}
        return converted(await self.command("screenshot", present), Picture)

    async def disconnect(self) -> Done:
        """Close the machine's connection; it may come back by itself.

        It needs a client with `login=(email, password)`.
        """
        return await self._send(operations.DISCONNECT)

    async def revoke(self) -> Done:
        """Revoke the machine's token: it has to be set up again.

        It needs a client with `login=(email, password)`.
        """
        return await self._send(operations.REVOKE)

    async def _send(
        self,
        operation: operations.Operation[operations.T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        **parameters: str,
    ) -> operations.T:
        return await self._transport.send(
            operation,
            query=query,
            body=body,
            timeout=None,
            is_login=False,
            daemonId=self.id,
            **parameters,
        )
