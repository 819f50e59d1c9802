"""The providers of agents that run in a terminal, from their files."""

import asyncio
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Final

from outrider.contract.errors import ApiError
from outrider.contract.resources import Provider as Description
from outrider.daemon.agents.adapter import Adapter
from outrider.daemon.agents.chat_log import ChatLog, chat_file
from outrider.daemon.agents.cli.adapter_state import CliState
from outrider.daemon.agents.cli.agent import CliAgent
from outrider.daemon.agents.cli.keyboard import lines_to_type
from outrider.daemon.agents.cli.screen import ScreenRules
from outrider.daemon.agents.cli.scrollback import HISTORY as WHOLE_HISTORY
from outrider.daemon.agents.cli.scrollback import Scrollback
from outrider.daemon.agents.cli.spec import CliSpec
from outrider.daemon.agents.cli.status import END_GRACE
from outrider.daemon.agents.cli.tmux import HISTORY, Pane, Tmux, private_file
from outrider.daemon.agents.cli.tmux_control import TmuxError
from outrider.daemon.agents.cli.transcripts import READERS
from outrider.daemon.agents.cli.transcripts.transcript import ProcessTranscript, Transcript
from outrider.daemon.agents.failure import output_end
from outrider.daemon.agents.guards import Guards
from outrider.daemon.agents.provider_spec import fill_placeholders
from outrider.daemon.agents.session import Clock
from outrider.daemon.child import start
from outrider.daemon.journal import Journal
from outrider.daemon.session_record import SessionRecord

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_PLACES: Final = (
    "HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "XDG_DATA_HOME",
    "OPENCODE_DB",
)


class CliProvider:
    """One kind of agent that runs in a terminal.

    Args:
        chats: where the chats are kept of agents that keep no record.
        environment: what agents inherit, before the file's changes.
    """

    def __init__(
        self,
        file: CliSpec,
        *,
        tmux: Tmux,
        journal: Journal,
        chats: Path,
        environment: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self.spec = file
        self._judge = ScreenRules(file)
        self._tmux = tmux
        self._journal = journal
        self._chats = chats
        self._clock = clock
        self._given = environment

    def describe(self) -> Description:
        """Return what the API tells of it. Looks for its program on the agent's PATH."""
        path = shutil.which(self.spec.command[0], path=self._environment().get("PATH"))
        return self.spec.description(path)

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the agent in a window of its own and return once it is ready, or asks."""
        environment = self._environment() | {"PWD": record.path}
        state = CliState(record)
        state.set_places({name: environment[name] for name in _PLACES if name in environment})
        await self._prepare(record, environment)
        argv = self._arguments(record)
        order = await asyncio.to_thread(_write_order, argv, environment, record.path)
        try:
            pane = await self._tmux.open(
                record.id,
                [sys.executable, "-I", "-S", str(_LAUNCHER), str(order)],
                history=WHOLE_HISTORY if self.spec.record is None else HISTORY,
            )
            state.set_process(pane.pid)
            adapter = self._adapter(record, pane)
            try:
                await adapter.until_ready()
            except BaseException:
                await asyncio.shield(adapter.close())
                raise
        except TmuxError as error:
            raise ApiError(500, f"{self.spec.display_name} did not start: {error}") from error
        finally:
            order.unlink(missing_ok=True)  # where the launcher did not come to read it
        return adapter

    async def restore(self, record: SessionRecord) -> Adapter:
        """Find the agent's window again. What is left of an agent without one is ended."""
        pane = await self._tmux.find(record.id)
        if pane is None:
            await CliState(record).end_orphan(END_GRACE)
        adapter = self._adapter(record, pane, started=True)
        await adapter.look()
        return adapter

    def _adapter(
        self, record: SessionRecord, pane: Pane | None, *, started: bool = False
    ) -> CliAgent:
        transcript = self._transcript(record)
        if pane is not None and isinstance(transcript, ProcessTranscript):
            transcript.find_by_process(pane.pid, CliState(record).values)
        return CliAgent(
            self.spec,
            self._judge,
            self._tmux,
            pane,
            transcript=transcript,
            scrollback=self._scrollback(record) if transcript is None else None,
            record=record,
            journal=self._journal,
            started=started,
        )

    def _transcript(self, record: SessionRecord) -> Transcript | None:
        if self.spec.record is None:
            return None
        environment = self._environment() | CliState(record).values
        return READERS[self.spec.record](environment, Path(record.path), _conversation(record))

    def _scrollback(self, record: SessionRecord) -> Scrollback:
        chat = ChatLog(chat_file(self._chats, record.id), self._clock)
        keys = self.spec.input
        guards = Guards(keys.guard_before, keys.guard_behind, keys.guard_mark)
        return Scrollback(
            chat, keys.prompt, partial(lines_to_type, keys, guards), record, self._journal
        )

    def _arguments(self, record: SessionRecord) -> list[str]:
        file = self.spec
        words = [*file.command, *file.args, *(file.model_args if record.model else [])]
        return [fill_placeholders(word, self._values(record)) for word in words]

    def _values(self, record: SessionRecord) -> dict[str, str]:
        return {
            "conversation": _conversation(record),
            "dir": record.path,
            "home": self._environment().get("HOME", str(Path.home())),
            "model": record.model or "",
            "now": str(round(time.time() * 1000)),
        }

    async def _prepare(self, record: SessionRecord, environment: Mapping[str, str]) -> None:
        """Run what the provider file wants to have run before a launch."""
        prepare = self.spec.prepare
        if prepare is None:
            return
        values = self._values(record)
        with tempfile.NamedTemporaryFile("w", prefix="outrider-", encoding="utf-8") as file:
            file.write(fill_placeholders(prepare.file or "", values))
            file.flush()
            words = [
                fill_placeholders(word, values | {"file": file.name}) for word in prepare.command
            ]
            await self._run(words, record.path, environment, prepare.timeout)

    async def _run(
        self, words: list[str], cwd: str, environment: Mapping[str, str], limit: float
    ) -> None:
        name = self.spec.display_name
        try:
            process = await start(words, cwd=cwd, env=environment, stdout=PIPE, stderr=STDOUT)
        except OSError as error:
            raise ApiError(500, f"{name} did not start: {words[0]}: {error}") from error
        try:
            said = await asyncio.wait_for(process.output(), limit)
        except TimeoutError:
            raise ApiError(
                500, f"{name} did not start: {words[0]} took longer than {limit:.0f} s"
            ) from None
        finally:
            await process.group.end(0.5)
            process.close()
        if process.returncode:
            ending = output_end(said.decode("utf-8", "replace"))
            raise ApiError(500, f"{name} did not start: {words[0]} failed:\n{ending}")

    def _environment(self) -> dict[str, str]:
        """Return the agent's environment: the daemon's, with what the provider file changes."""
        return self.spec.environment_from(self._given, ("OUTRIDER_", "TMUX"))


def _conversation(record: SessionRecord) -> str:
    """Return the UUID of the agent's conversation, made from the session's id.

    So a daemon that was killed in the middle of a launch can still find the record of it. It
    does not begin with the time as that id does: some agents know a chat by its first digits.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_OID, record.id))


def _write_order(argv: list[str], environment: Mapping[str, str], directory: str) -> Path:
    """Write down for the launcher what to run, and where."""
    order = {"argv": argv, "environment": environment, "directory": directory}
    return Path(private_file(json.dumps(order).encode()))
