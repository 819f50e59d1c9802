"""What an agent may request of its client: approvals, files of its directory, terminals.

The SDK calls `Client`, which passes requests on to `AgentFiles`, `Approvals` and `AgentTerminals`.
"""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    CreateTerminalResponse,
    DeniedOutcome,
    EnvVariable,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
)

from outrider.contract.ids import new_id
from outrider.contract.resources import ActionOption, FileDiff, PendingAction
from outrider.machine.agents.acp.terminals import AgentTerminals
from outrider.machine.agents.tools import lines_of
from outrider.machine.system.confined_directory import ConfinedDirectory, PathOutsideError

REFUSALS_KEPT: Final = 20
"""Refused paths that the debug bundle shows: the newest."""

MAX_FILE: Final = 16 * 1024 * 1024
"""Bytes of the largest file that is read or written."""

MAX_APPROVALS: Final = 32
"""Approvals that may wait; a further one is answered as cancelled."""

CANCEL: Final = "outrider:cancel"
"""The option that is added if an agent offers no option to reject."""

_CANCELLED: Final = RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


class OutsideError(RequestError):
    """The path leads out of the session's directory."""

    def __init__(self, path: str, root: str) -> None:
        super().__init__(
            -32602,
            f"{path} is not inside the session's directory {root}: it was not touched",
            {"path": path},
        )
        self.path = path


class AgentFiles:
    """The files inside one directory."""

    def __init__(self, root: str) -> None:
        self._directory = ConfinedDirectory(root)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return a text file's contents: `limit` lines, starting with line `line` (from 1).

        Raises:
            OutsideError: it is outside the directory after symbolic links are resolved.
            RequestError: it does not exist, is no UTF-8 text, or is too large.
        """
        _check_absolute(path)
        try:
            with os.fdopen(self._directory.open_file(path), "rb") as file:
                data = file.read(MAX_FILE + 1)
        except (PathOutsideError, OSError, ValueError) as error:
            raise self._request_error(path, error) from error
        if len(data) > MAX_FILE:
            raise RequestError(-32602, f"{path} has more than {MAX_FILE} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RequestError(-32602, f"{path} is not a UTF-8 text file") from error
        if line is None and limit is None:
            return text
        first = max((line or 1) - 1, 0)
        return "".join(lines_of(text)[first : None if limit is None else first + limit])

    def write(self, path: str, content: str) -> None:
        """Replace the content of a file; create the file and its folders if they do not exist.

        Raises: as `read` does.
        """
        _check_absolute(path)
        # Lone surrogates, which JSON can hold, have no bytes in UTF-8.
        data = content.encode("utf-8", "replace")
        if len(data) > MAX_FILE:
            raise RequestError(-32602, f"{path} would have more than {MAX_FILE} bytes")
        try:
            self._directory.write_file(path, data)
        except (PathOutsideError, OSError, ValueError) as error:
            raise self._request_error(path, error) from error

    def _request_error(self, path: str, error: Exception) -> RequestError:
        if isinstance(error, PathOutsideError):
            return OutsideError(path, str(self._directory.root))
        if isinstance(error, FileNotFoundError):
            return RequestError.resource_not_found(path)
        if isinstance(error, OSError):
            return RequestError(-32603, f"{path}: {error.strerror or error}")
        return RequestError(-32602, f"{path!r} cannot be used: {error}")


def _check_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise RequestError(-32602, f"{path!r} is not an absolute path")


@dataclass
class _Approval:
    action: PendingAction
    answer: asyncio.Future[RequestPermissionResponse]


class Approvals:
    """Permission requests that wait, oldest first: a person answers one at a time.

    Args:
        on_change: called when there is a first one to be answered.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._waiting: OrderedDict[str, _Approval] = OrderedDict()
        self._is_turn_cancelled = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> PendingAction | None:
        """The approval that is to be answered now."""
        approval = next(iter(self._waiting.values()), None)
        return None if approval is None else approval.action

    async def request(
        self, message: str, diff: list[FileDiff], options: Sequence[PermissionOption]
    ) -> RequestPermissionResponse:
        """Return the answer to a permission request, once it has been given."""
        # An agent that was interrupted may still ask about calls that it had begun: nobody
        # should have to answer for a turn that they have ended.
        if self._is_turn_cancelled or len(self._waiting) >= MAX_APPROVALS:
            return _CANCELLED
        offers = [
            ActionOption(id=option.option_id, label=option.name, kind=option.kind)
            for option in options
        ]
        if not any(offer.kind.startswith("reject") for offer in offers):
            offers.append(ActionOption(id=CANCEL, label="Cancel", kind="reject_once"))
        action = PendingAction(id=new_id("act"), message=message, options=offers, diff=diff or None)
        approval = _Approval(action, asyncio.get_running_loop().create_future())
        self._waiting[action.id] = approval
        # A later one is observed once it is the first: a person answers one at a time.
        if len(self._waiting) == 1:
            self._on_change()
        # The SDK cancels this task when the agent is gone; its question must go, too.
        try:
            return await approval.answer
        finally:
            self._waiting.pop(action.id, None)

    def answer(self, action_id: str, option_id: str) -> bool:
        """Answer the first approval; the next one becomes the first.

        Returns False if `action_id` is no longer the first approval: nothing is answered then.
        """
        # An answer to a question that was withdrawn meanwhile must not go to the next one.
        first = self.first
        if first is None or first.id != action_id:
            return False
        approval = self._waiting.pop(action_id)
        if approval.answer.done():
            return False
        approval.answer.set_result(
            _CANCELLED
            if option_id == CANCEL
            else RequestPermissionResponse(
                outcome=AllowedOutcome(outcome="selected", option_id=option_id)
            )
        )
        return True

    def cancel_turn(self) -> None:
        """Answer every approval as cancelled, also those that the turn will still request."""
        self._is_turn_cancelled = True
        self.cancel_all()
        self._on_change()

    def end_turn(self) -> None:
        """Cancel what the turn has left open; the next turn may request approvals again."""
        self._is_turn_cancelled = False
        self.cancel_all()

    def cancel_all(self) -> None:
        """Answer every approval as cancelled: nobody will answer them any more."""
        waiting, self._waiting = self._waiting, OrderedDict()
        for approval in waiting.values():
            if not approval.answer.done():
                approval.answer.set_result(_CANCELLED)


class Client:
    """Carries out the requests of one agent; the SDK calls it by these names.

    Args:
        approval: returns what a person is to decide on: a text, and the changes.
        note_refusal: gets the action and the path of every refusal, for the audit.

    Attributes:
        refused: the newest paths that were refused, for the debug bundle.
    """

    def __init__(
        self,
        files: AgentFiles,
        terminals: AgentTerminals,
        approvals: Approvals,
        approval: Callable[[ToolCallUpdate], tuple[str, list[FileDiff]]],
        note_refusal: Callable[[str, str], None],
    ) -> None:
        self._note_refusal = note_refusal
        self._files = files
        self._terminals = terminals
        self._approvals = approvals
        self._approval = approval
        self.refused: list[str] = []

    async def request_permission(
        self, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Request the user's approval, and return the answer."""
        return await self._approvals.request(*self._approval(tool_call), options)

    async def read_text_file(
        self, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        """Return a file of the session's directory."""
        try:
            # On a thread: the file system may be slow, or hang.
            content = await asyncio.to_thread(self._files.read, path, line, limit)
        except OutsideError as error:
            self._refuse("read", error)
            raise
        return ReadTextFileResponse(content=content)

    async def write_text_file(self, path: str, content: str, **_: Any) -> None:
        """Write a file of the session's directory."""
        try:
            # As above. The agent gets its answer once the file is complete.
            await asyncio.to_thread(self._files.write, path, content)
        except OutsideError as error:
            self._refuse("write", error)
            raise

    async def create_terminal(
        self,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> CreateTerminalResponse:
        """Start a command."""
        added = {variable.name: variable.value for variable in env or []}
        name = await self._terminals.create(command, args or [], added, cwd, output_byte_limit)
        return CreateTerminalResponse(terminal_id=name)

    async def terminal_output(self, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        """Return what a command has printed so far."""
        output, truncated, status = self._terminals.output(terminal_id)
        return TerminalOutputResponse(output=output, truncated=truncated, exit_status=status)

    async def wait_for_terminal_exit(
        self, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        """Wait until a command has ended; return how."""
        status = await self._terminals.wait(terminal_id)
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(self, terminal_id: str, **_: Any) -> None:
        """End a command."""
        await self._terminals.kill(terminal_id)

    async def release_terminal(self, terminal_id: str, **_: Any) -> None:
        """End a command and release its terminal."""
        await self._terminals.release(terminal_id)

    def _refuse(self, operation: str, error: OutsideError) -> None:
        self._note_refusal(f"agent.fs_{operation}_refused", error.path)
        self.refused = [*self.refused, f"{operation} {error.path}"][-REFUSALS_KEPT:]
