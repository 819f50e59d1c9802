"""What the journal stores about a session: pure data, so that the agent core may use it."""

from typing import Final

import msgspec

from outrider.contract.events import Answer
from outrider.contract.providers import Category
from outrider.contract.resources import EndReason, PendingAction, Session, Workspace, Worktree
from outrider.contract.structs import Wire

_SELECTED: Final = "agent"


class EmittedMessages(Wire, kw_only=True, omit_defaults=True):
    """The messages of a chat whose event has been emitted, by their indexes.

    Attributes:
        count: all before this one.
        later: further ones; a message before them was not complete yet.
    """

    count: int = 0
    later: list[int] = []


class SessionRecord(Wire, kw_only=True):
    """What is needed to restore a session after a restart.

    The `emitted_…` fields and `generating_since` prevent an event from being emitted twice. The
    field names on disk (`name=`) never change.

    Attributes:
        generating_since: start of the current turn in epoch milliseconds, set once its event has
            been emitted.
        emitted_action: id of the newest pending action whose event has been emitted.
        emitted_error: the current error of the agent, if its event has been emitted.
        emitted_started: whether `session:started` has been emitted; true in older records.
        emitted_state: digest of the state in the newest `session:updated`.
        emitted_queue: the ids of the messages in the newest `queue:changed`.
        emitted_messages: which messages have been emitted, by the agent's type; None in an older
            record, whose messages so far are not emitted.
        open_action: the pending action for which `approval:opened` has been emitted, until
            `approval:resolved` has been.
        answer: how a client answers `open_action`, from the moment at which the agent gets it.
        adapter_state: what the adapter needs to find its agent and its chat again.
        ended_at: when the session ended, in epoch milliseconds; None while it is running.
        end_reason: why it ended. Set before the agent is ended, so that a daemon that is killed
            meanwhile completes the end after its restart.
        emitted_ended: whether `session:ended` has been emitted; true in older records.
        resumable: whether the ended session can be continued.
        not_resumable: why it cannot, for a person.
        last_state: the session as the API showed it last, of an ended one.
        worktree: the git worktree that it was launched in.
        real_path: where `path` led when it was launched, free of links; None in older records.
        start_commit: the commit that was checked out when it was launched; empty: there was none
            yet; None: its directory was in no repository that could be read, or an older release
            wrote this record.
    """

    id: str
    kind: Category
    type: str
    name: str
    path: str
    model: str | None
    created_at: int
    last_activity_at: int
    generating_since: int | None = None
    emitted_action: str | None = msgspec.field(default=None, name="asked")
    emitted_error: str | None = msgspec.field(default=None, name="failed")
    emitted_started: bool = True
    emitted_state: str | None = None
    emitted_queue: list[str] = []
    emitted_messages: dict[str, EmittedMessages] | None = None
    open_action: PendingAction | None = None
    answer: Answer | None = None
    adapter_state: dict[str, str] = msgspec.field(default_factory=dict, name="native")
    ended_at: int | None = None
    end_reason: EndReason | None = None
    emitted_ended: bool = True
    resumable: bool = False
    not_resumable: str | None = None
    last_state: Session | None = None
    worktree: Worktree | None = None
    real_path: str | None = None
    start_commit: str | None = None

    @property
    def workspace(self) -> Workspace:
        """The directory that the agent works in."""
        return Workspace(path=self.path, name=self.path.rstrip("/").rpartition("/")[2] or self.path)

    @property
    def selected_agent(self) -> str | None:
        """The type of the agent that receives messages, in an IDE with several agents."""
        return self.adapter_state.get(_SELECTED)

    @selected_agent.setter
    def selected_agent(self, agent: str) -> None:
        self.adapter_state[_SELECTED] = agent
