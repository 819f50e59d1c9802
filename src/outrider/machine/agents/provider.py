"""The base of the providers, which launch and restore the agents of one kind."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.contract.errors import ApiError
from outrider.contract.resources import Provider as Description
from outrider.contract.targets import SESSION_VARIABLE
from outrider.machine.agents.acp.spec import DEFAULT_TIMEOUTS, Timeouts
from outrider.machine.agents.adapter import Adapter, NoteRefusal
from outrider.machine.agents.failure import not_resumable
from outrider.machine.agents.ide.debugging_port import DebuggingPorts
from outrider.machine.agents.provider_spec import ProviderSpec
from outrider.machine.link.journal import Journal
from outrider.machine.sessions.clock import Clock, epoch_millis
from outrider.machine.sessions.record import SessionRecord
from outrider.machine.tmux.server import Tmux


@dataclass(frozen=True)
class ProviderContext:
    """What the providers of a machine share.

    Attributes:
        chats: the directory of the chat logs, a file for each session.
        ides: the directory of the folders of IDEs: chats, browser profiles and logs.
        environment: what agents inherit, before the changes of their files.
        note_refusal: gets every refusal of a request of an agent, for the audit.
        acp_timeouts: how long agents that speak ACP may take.
        ports: connects to the debugging ports of IDEs.
        endpoints: the debugging ports of all IDEs in use.
    """

    tmux: Tmux
    journal: Journal
    chats: Path
    ides: Path
    environment: Mapping[str, str]
    note_refusal: NoteRefusal
    acp_timeouts: Timeouts = DEFAULT_TIMEOUTS
    clock: Clock = epoch_millis
    ports: DebuggingPorts = field(default_factory=DebuggingPorts)
    endpoints: set[str] = field(default_factory=set)


class Provider(ABC):
    """One kind of agent, described by a TOML file; `spec` is what the file says."""

    def __init__(self, spec: ProviderSpec, context: ProviderContext) -> None:
        self.spec = spec
        self._context = context
        self._journal = context.journal

    def describe(self) -> Description:
        """Return its description in the API; looks for its program on the agent's PATH."""
        return self.spec.description(self._find(self.spec.program))

    def _find(self, program: str) -> str | None:
        # The agent's PATH, not the daemon's: its file may change it.
        return shutil.which(program, path=self._environment().get("PATH"))

    def _environment(self) -> dict[str, str]:
        """Return the agents' environment: the daemon's with the changes of the file."""
        return self.spec.environment_from(self._context.environment)

    def _environment_of(self, record: SessionRecord) -> dict[str, str]:
        """Return the environment of the agent of a session."""
        return self._environment() | {SESSION_VARIABLE: record.id}

    @abstractmethod
    async def launch(self, record: SessionRecord) -> Adapter:
        """Start an agent in `record.path` and return once it is ready for a message, or asks.

        Puts what `restore` will need into `record.adapter_state`. Leaves nothing running where it
        raises or is cancelled.

        Raises:
            ApiError: 500, the agent ended or did not become ready; the text says why.
        """

    @abstractmethod
    def not_resumable(self, record: SessionRecord) -> str | None:
        """Return why this session cannot be continued once it has ended; None if it can.

        The reason is a sentence for a person. No I/O.
        """

    async def resume(self, record: SessionRecord) -> Adapter:
        """Start an agent that continues the chat of a session that has ended.

        Returns once it is ready for a message, or asks; the ids of its messages are as before.
        Changes `record.adapter_state`. Leaves nothing running where it raises or is cancelled.

        Raises:
            ApiError: 409, `NOT_RESUMABLE`; 500, as `launch` does.
        """
        raise not_resumable(self.not_resumable(record) or "")

    @abstractmethod
    async def restore(self, record: SessionRecord) -> Adapter:
        """Find an agent again that ran before this daemon started.

        Never fails: an agent that is gone is observed as `error`, with `gone` set, and its
        chat stays readable where the agent left a record of it.
        """


class UnusableProvider(Provider):
    """A type whose file is wrong: shown with the error, and never launched."""

    def __init__(self, spec: ProviderSpec, context: ProviderContext, error: str) -> None:
        super().__init__(spec, context)
        self._error = error

    def describe(self) -> Description:
        """Return its description in the API."""
        description = self.spec.description(None)
        description.error = self._error
        return description

    async def launch(self, record: SessionRecord) -> Adapter:  # noqa: ARG002
        """Refuse."""
        raise ApiError(500, self._error)

    restore = launch

    def not_resumable(self, record: SessionRecord) -> str | None:  # noqa: ARG002
        """Return the error: it may be corrected, but until then nothing can be resumed."""
        return self._error
