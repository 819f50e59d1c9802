"""The provider spec of an ACP agent: what its TOML file holds. See docs/acp.md.

What `AcpProvider` needs before an agent runs is here too, without the SDK: loading that takes half
a second.
"""

from typing import Final, Literal, NamedTuple

from outrider.machine.agents.adapter import AdapterState, StateText
from outrider.machine.agents.patterns import Pattern, pattern
from outrider.machine.agents.provider_spec import NonEmptyText, ProviderSpec, check_pattern


class AcpState(AdapterState):
    """What the journal keeps of an agent that speaks ACP.

    Attributes:
        session: the agent's own id of the session.
        reopens: `no` if the agent cannot open a session again.
    """

    session = StateText("acp_session")
    reopens = StateText("acp_reopens")


class Timeouts(NamedTuple):
    """How long an agent may take, in seconds.

    Attributes:
        answer: to answer the change of a control.
        write: to read its standard input.
    """

    answer: float = 30.0
    write: float = 10.0


DEFAULT_TIMEOUTS: Final = Timeouts()


class AcpSpec(ProviderSpec, kw_only=True):
    """One kind of agent that speaks the Agent Client Protocol.

    `authenticate` is the login method to use if the agent requires one. `login` tells a person
    how to log in; `login_needed` matches errors that mean a missing login, besides the
    protocol's own. Messages that match `guard_before`, which the agent would take for a command
    of its own, get a space in front. `notices` matches what the agent program sends in the
    name of the model. `reopens` is false for an agent that fails to open an earlier session
    although it offers that. Times are seconds.
    """

    category: Literal["acp"]
    mode: NonEmptyText | None = None
    authenticate: NonEmptyText | None = None
    login: NonEmptyText = "log in to it on this machine as the same user, then launch it again"
    login_needed: NonEmptyText | None = None
    guard_before: NonEmptyText | None = None
    notices: NonEmptyText | None = None
    reopens: bool = True

    def __post_init__(self) -> None:
        for name in ("login_needed", "guard_before", "notices"):
            check_pattern(name, getattr(self, name))

    def login_pattern(self) -> Pattern | None:
        """Return the pattern of errors that mean a missing login."""
        return _compiled(self.login_needed)

    def notices_pattern(self) -> Pattern | None:
        """Return the pattern of text that the agent program sends in the name of the model."""
        return _compiled(self.notices)


def cannot_reopen_message(name: str) -> str:
    """Return why a session ends with the daemon if its agent cannot open an earlier one."""
    return f"The machine agent was restarted, and {name} cannot open an earlier session again"


def _compiled(text: str | None) -> Pattern | None:
    return None if text is None else pattern(text)
