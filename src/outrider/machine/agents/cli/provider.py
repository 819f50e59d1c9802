"""`CliProvider`: launches and restores agents of one type that run in a terminal."""

import asyncio
import tempfile
import time
import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from subprocess import STDOUT

from outrider.contract.errors import ApiError
from outrider.contract.resources import EndReason
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.cli.adapter_state import CliState
from outrider.machine.agents.cli.agent import CliAgent
from outrider.machine.agents.cli.chat import ChatSource, RecordedChat, ScreenChat
from outrider.machine.agents.cli.keyboard import lines_to_type
from outrider.machine.agents.cli.launcher import launch_command, launch_file
from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.cli.scrollback import HISTORY as WHOLE_HISTORY
from outrider.machine.agents.cli.scrollback import Scrollback
from outrider.machine.agents.cli.spec import CliSpec
from outrider.machine.agents.cli.status import END_GRACE
from outrider.machine.agents.cli.transcripts import READERS
from outrider.machine.agents.cli.transcripts.transcript import Transcript, catch_up
from outrider.machine.agents.failure import not_resumable, output_end
from outrider.machine.agents.pane import Pane
from outrider.machine.agents.provider import Provider, ProviderContext
from outrider.machine.agents.provider_spec import fill_placeholders
from outrider.machine.sessions.chat_log import ChatLog, chat_file
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.system.child import run
from outrider.machine.tmux.control import TmuxError
from outrider.machine.tmux.server import HISTORY, private_file


class CliProvider(Provider):
    """One type of agent that runs in a terminal."""

    spec: CliSpec

    def __init__(self, spec: CliSpec, context: ProviderContext) -> None:
        super().__init__(spec, context)
        self._rules = ScreenRules(spec)
        self._tmux = context.tmux

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the agent in its own window; return once it is ready or asks a question."""
        environment = self._environment_of(record)
        CliState(record).set_transcript_variables(environment)
        await self._prepare(record, environment)
        return await self._start(record, self.spec.args, environment)

    def not_resumable(self, record: SessionRecord) -> str | None:  # noqa: ARG002
        """Return why its sessions cannot be continued; None if they can."""
        if self.spec.resume_args:
            return None
        return f"{self.spec.display_name} cannot continue an earlier chat"

    async def resume(self, record: SessionRecord) -> Adapter:
        """Start the agent with the conversation that it has recorded.

        An agent that has recorded nothing, because it got no message, begins a new one.
        """
        state = CliState(record)
        await state.end_orphan(END_GRACE)
        transcript = self._transcript(record)
        if transcript is not None:
            await catch_up(transcript)
            state.set_resumed(self._context.clock(), transcript.prompts)
        if transcript is None or not transcript.message_count:
            if self._journal.message_ids(record.id):
                raise not_resumable(f"{self.spec.display_name} no longer has its own record of it")
            state.forget_conversation()
            self._journal.save_session(record)
            return await self.launch(record)
        # Where the transcript is was decided at the first launch; the variables may have changed.
        environment = self._environment_of(record) | state.transcript_variables
        return await self._start(record, self.spec.resume_args, environment)

    async def _start(
        self, record: SessionRecord, args: list[str], environment: dict[str, str]
    ) -> Adapter:
        """Start the agent with these arguments; return once it is ready or asks a question."""
        state = CliState(record)
        argv = self.spec.words(args, record.model, self._values(record, environment))
        content = launch_file(argv, environment | {"PWD": record.path}, record.path)
        file = Path(await asyncio.to_thread(private_file, content))
        try:
            pane = await self._tmux.open(
                record.id,
                launch_command(file),
                history=WHOLE_HISTORY if self.spec.record is None else HISTORY,
            )
            state.set_process(pane.pid)
            adapter = self._adapter(record, pane)
            try:
                state.tmux_server = await self._tmux.server()
                await adapter.wait_until_ready()
            # Also if the launch is cancelled: its window would run on without a session.
            except BaseException:
                await asyncio.shield(adapter.close())
                raise
        except TmuxError as error:
            raise ApiError(500, f"{self.spec.display_name} did not start: {error}") from error
        finally:
            file.unlink(missing_ok=True)  # noqa: ASYNC240  # local, if the launcher did not run
        return adapter

    async def restore(self, record: SessionRecord) -> Adapter:
        """Find the agent's window again; without one, end the agent's remaining processes."""
        pane = await self._tmux.find(record.id)
        lost: EndReason = "machine_restarted"
        if pane is None:
            state = CliState(record)
            if state.tmux_server and state.tmux_server == await self._tmux.server():
                lost = "crashed"  # its window was closed; windows of agents that end stay
            await state.end_orphan(END_GRACE)
        adapter = self._adapter(record, pane, was_ready=True, lost=lost)
        await adapter.poll()
        if pane is None:  # nobody looks at it any more: read the end of its transcript once
            await adapter.messages()
        return adapter

    def _adapter(
        self,
        record: SessionRecord,
        pane: Pane | None,
        *,
        was_ready: bool = False,
        lost: EndReason = "machine_restarted",
    ) -> CliAgent:
        source = self._source(record)
        if pane is not None and source.transcript is not None:
            source.transcript.find_by_process(pane.pid, CliState(record).values)
        return CliAgent(
            self.spec,
            self._rules,
            self._tmux,
            pane,
            source=source,
            record=record,
            journal=self._journal,
            was_ready=was_ready,
            lost=lost,
        )

    def _source(self, record: SessionRecord) -> ChatSource:
        transcript = self._transcript(record)
        if transcript is not None:
            return RecordedChat(transcript, self.spec, record, self._journal)
        context, keys = self._context, self.spec.input
        chat = ChatLog(chat_file(context.chats, record.id), context.clock)
        typed = partial(lines_to_type, keys, keys.guards())
        return ScreenChat(Scrollback(chat, keys.prompt, typed, record, self._journal), self._tmux)

    def _transcript(self, record: SessionRecord) -> Transcript | None:
        if self.spec.record is None:
            return None
        environment = self._environment() | CliState(record).values
        return READERS[self.spec.record](environment, _conversation(record))

    def _values(self, record: SessionRecord, environment: Mapping[str, str]) -> dict[str, str]:
        conversation = _conversation(record)
        return {
            "conversation": conversation,
            "native_id": CliState(record).native_id or conversation,
            "dir": record.path,
            "home": environment.get("HOME", str(Path.home())),
            "model": record.model or "",
            "now": str(round(time.time() * 1000)),
        }

    async def _prepare(self, record: SessionRecord, environment: Mapping[str, str]) -> None:
        """Run the command that the provider file requires before a launch."""
        prepare = self.spec.prepare
        if prepare is None:
            return
        values = self._values(record, environment)
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
        name = f"{self.spec.display_name} did not start: {words[0]}"
        try:
            status, output = await run(
                words, seconds=limit, cwd=cwd, env=environment, stderr=STDOUT
            )
        except TimeoutError:
            raise ApiError(500, f"{name} took longer than {limit:.0f} s") from None
        except OSError as error:
            raise ApiError(500, f"{name}: {error}") from error
        if status:
            ending = output_end(output.decode("utf-8", "replace"))
            raise ApiError(500, f"{name} failed:\n{ending}")


def _conversation(record: SessionRecord) -> str:
    """Return the UUID of the agent's conversation, which is derived from the session's id.

    A daemon that was killed during a launch thus finds the transcript after its restart. The
    session's own id is not used, as some agents identify a chat by its first digits, which are
    the time there.
    """
    return CliState(record).conversation or str(uuid.uuid5(uuid.NAMESPACE_OID, record.id))
