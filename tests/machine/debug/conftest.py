"""A scripted session whose debug bundle is asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outrider.contract.commands import ChatDebug, ChatDebugged, LaunchCli
from outrider.contract.resources import Message
from outrider.machine.debug.bundle import BundleCollector
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.ended_chats import EndedChats
from outrider.machine.sessions.session import AgentSession
from outrider.machine.sessions.sessions import Sessions
from tests.machine.agents.scripted import ScriptedAdapter, ScriptedProvider

Role = Any


@pytest.fixture(autouse=True)
def nothing_left() -> None:
    """Thousands of cases here start neither a task nor a process, and are spared the look."""


def said(index: int, content: str, role: Role = "assistant") -> Message:
    """Return a message."""
    return Message(
        id=f"msg_{index}", index=index, role=role, kind="text", content=content, timestamp=index
    )


class Bench:
    """One scripted session, and its bundle."""

    def __init__(self, folder: Path, journal: Journal) -> None:
        self.folder = folder
        self.provider = ScriptedProvider()
        self.sessions = Sessions(
            daemon_id="machine_x",
            providers={"robot": self.provider},
            journal=journal,
            chats=EndedChats(folder / "chats"),
            on_change=lambda session: None,
            on_remove=lambda session_id: None,
            emit=lambda event: None,
        )
        self.bundles = BundleCollector(self.sessions)

    async def launch(self) -> AgentSession:
        """Launch the scripted agent."""
        request = LaunchCli(cli_type="robot", dir=str(self.folder))
        launched = await self.sessions.launcher.launch_cli(request)
        return self.sessions.find(ChatDebug(session_id=launched.session_id))

    @property
    def agent(self) -> ScriptedAdapter:
        """The agent that was launched last."""
        return self.provider.made[-1]

    async def debugged(self, **request: Any) -> ChatDebugged:
        """Return the answer to a request, as it is after its way over the wire."""
        answer = await self.bundles.collect(ChatDebug(**request))
        return msgspec.json.decode(msgspec.json.encode(answer), type=ChatDebugged)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A machine with a scripted provider."""
    journal = Journal(tmp_path / "journal.db")
    yield Bench(tmp_path, journal)
    journal.close()
