"""What an agent may ask of its client: permission, files of its directory, terminals."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from acp.schema import (
    CreateTerminalResponse,
    EnvVariable,
    PermissionOption,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
)

from outrider.daemon.agents.acp.files import Files, OutsideError
from outrider.daemon.agents.acp.questions import Questions
from outrider.daemon.agents.acp.terminals import Terminals

REFUSALS_KEPT: Final = 20


class Client:
    """Carries out the requests of one agent; the SDK calls it by these names.

    Args:
        question: returns the text that a person is to decide about.
        note_refusal: told the action and the path of what was refused.

    Attributes:
        refused: the newest paths that were refused, for the debug bundle.
    """

    def __init__(
        self,
        files: Files,
        terminals: Terminals,
        questions: Questions,
        question: Callable[[ToolCallUpdate], str],
        note_refusal: Callable[[str, str], None],
    ) -> None:
        self._note_refusal = note_refusal
        self._files = files
        self._terminals = terminals
        self._questions = questions
        self._question = question
        self.refused: list[str] = []

    async def request_permission(
        self, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Ask the user, and return what was chosen."""
        return await self._questions.ask(self._question(tool_call), options)

    async def read_text_file(
        self, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        """Return a file of the session's directory."""
        try:
            content = await asyncio.to_thread(self._files.read, path, line, limit)
        except OutsideError as error:
            self._refuse("read", error)
            raise
        return ReadTextFileResponse(content=content)

    async def write_text_file(self, path: str, content: str, **_: Any) -> None:
        """Write a file of the session's directory."""
        try:
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
        """Return what a command has printed by now."""
        output, truncated, status = self._terminals.output(terminal_id)
        return TerminalOutputResponse(output=output, truncated=truncated, exit_status=status)

    async def wait_for_terminal_exit(
        self, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        """Return how a command ended, once it has."""
        status = await self._terminals.wait(terminal_id)
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(self, terminal_id: str, **_: Any) -> None:
        """End a command."""
        await self._terminals.kill(terminal_id)

    async def release_terminal(self, terminal_id: str, **_: Any) -> None:
        """End a command and forget its terminal."""
        await self._terminals.release(terminal_id)

    def _refuse(self, what: str, error: OutsideError) -> None:
        self._note_refusal(f"agent.fs_{what}_refused", error.path)
        self.refused = [*self.refused, f"{what} {error.path}"][-REFUSALS_KEPT:]
