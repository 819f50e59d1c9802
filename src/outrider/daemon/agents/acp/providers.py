"""The providers of agents that speak the Agent Client Protocol, from their files."""

import asyncio
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from outrider.contract.resources import Provider as Description
from outrider.daemon.agents.acp.adapter import AcpAdapter
from outrider.daemon.agents.acp.lifetime import SESSION_KEY
from outrider.daemon.agents.acp.opening import cannot_reopen
from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.adapter import Adapter, NoteRefusal
from outrider.daemon.agents.provider import fill_placeholders
from outrider.daemon.agents.session import Clock
from outrider.daemon.agents.transcript import Transcript, chat_file
from outrider.daemon.session_record import SessionRecord


class AcpProvider:
    """One kind of agent that speaks the protocol.

    Args:
        folder: where the chats are kept, a file for each session.
        environment: what agents inherit, before the file's changes.
        note_refusal: told what agents were kept from.
    """

    def __init__(
        self,
        file: AcpFile,
        folder: Path,
        environment: Mapping[str, str],
        *,
        clock: Clock,
        note_refusal: NoteRefusal,
    ) -> None:
        self.spec = file
        self._folder = folder
        self._given = environment
        self._clock = clock
        self._note_refusal = note_refusal

    def describe(self) -> Description:
        """Return what the API tells of it. Looks for its program on the agent's PATH."""
        path = shutil.which(self.spec.command[0], path=self._environment().get("PATH"))
        return self.spec.described(path)

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start the agent with a new session and return once it is ready."""
        adapter = self._adapter(record)
        try:
            await adapter.open(self._arguments(record))
        except BaseException:
            await asyncio.shield(adapter.close())
            raise
        return adapter

    async def restore(self, record: SessionRecord) -> Adapter:
        """Begin to open the session again; the adapter tells its outcome."""
        adapter = self._adapter(record)
        if SESSION_KEY not in record.adapter_state:
            adapter.lost("The machine agent stopped while this agent was being launched")
        elif not self.describe().installed:
            adapter.lost(f"{self.spec.display_name} is not installed any more")
        elif not await asyncio.to_thread(Path(record.path).is_dir):
            adapter.lost(f"The directory {record.path} is no longer there")
        elif not self.spec.reopens:
            adapter.lost(cannot_reopen(self.spec.display_name))
        else:
            adapter.reopen(self._arguments(record))
        return adapter

    def _adapter(self, record: SessionRecord) -> AcpAdapter:
        transcript = Transcript(chat_file(self._folder, record.id), self._clock)
        return AcpAdapter(
            self.spec,
            record,
            transcript,
            self._environment(),
            note_refusal=self._note_refusal,
        )

    def _arguments(self, record: SessionRecord) -> list[str]:
        file = self.spec
        values = {"dir": record.path, "model": record.model or ""}
        command = shutil.which(file.command[0], path=self._environment().get("PATH"))
        words = [*file.command[1:], *file.args, *(file.model_args if record.model else [])]
        return [command or file.command[0], *(fill_placeholders(word, values) for word in words)]

    def _environment(self) -> dict[str, str]:
        """Return the agent's environment: the daemon's, with what the provider file changes."""
        return self.spec.environment_from(self._given, ("OUTRIDER_",))


def forget_others(folder: Path, session_ids: Iterable[str]) -> None:
    """Delete the chats of sessions that are no more: a daemon may be killed before it does."""
    kept = {chat_file(folder, session_id) for session_id in session_ids}
    for path in folder.glob("session_*.jsonl"):
        if path not in kept:
            path.unlink(missing_ok=True)
