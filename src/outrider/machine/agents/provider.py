"""The interface of a provider, which launches and restores the agents of one kind."""

from typing import Protocol

from outrider.contract.resources import Provider as Description
from outrider.machine.agents.adapter import Adapter
from outrider.machine.agents.provider_spec import ProviderSpec
from outrider.machine.sessions.record import SessionRecord


class Provider(Protocol):
    """One kind of agent, described by a TOML file."""

    @property
    def spec(self) -> ProviderSpec:
        """What the file says."""

    def describe(self) -> Description:
        """Return its description in the API, with whether its program is installed now."""

    async def launch(self, record: SessionRecord) -> Adapter:
        """Start an agent in `record.path` and return once it is ready for a message, or asks.

        Puts what `restore` will need into `record.adapter_state`. Leaves nothing running where it
        raises or is cancelled.

        Raises:
            ApiError: 500, the agent ended or did not become ready; the text says why.
        """

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

    async def restore(self, record: SessionRecord) -> Adapter:
        """Find an agent again that ran before this daemon started.

        Never fails: an agent that is gone is observed as `error`, with `gone` set, and its
        chat stays readable where the agent left a record of it.
        """
