"""What the journal keeps for the adapter of an IDE, typed."""

from collections.abc import Sequence

from outrider.machine.agents.ide.program import Program
from outrider.machine.agents.provider_spec import CDP
from outrider.machine.sessions.record import SessionRecord


class IdeState:
    """A view of a record's `adapter_state`; the caller saves the record after a change."""

    def __init__(self, record: SessionRecord) -> None:
        self._values = record.adapter_state

    @property
    def cdp(self) -> bool:
        """Whether the IDE was to be launched with its debugging port."""
        return self._values.get(CDP) != "off"

    @property
    def endpoint(self) -> str | None:
        """The address of the debugging port, None before it is known."""
        return self._values.get("endpoint")

    @endpoint.setter
    def endpoint(self, address: str) -> None:
        self._values["endpoint"] = address

    @property
    def programs(self) -> list[Program]:
        """The programs that were started for the IDE, the newest first.

        Empty if the IDE was adopted.
        """
        return [Program.parse(text) for text in self._values.get("programs", "").split()]

    @programs.setter
    def programs(self, programs: Sequence[Program]) -> None:
        self._values["programs"] = " ".join(map(str, programs))

    @property
    def awaiting_agent(self) -> str | None:
        """The type of the agent that has accepted a message and not begun to answer it."""
        return self._values.get("awaits")

    @awaiting_agent.setter
    def awaiting_agent(self, agent: str | None) -> None:
        if agent is None:
            self._values.pop("awaits", None)
        else:
            self._values["awaits"] = agent

    def answers(self, agent: str) -> int:
        """Return how many questions of an agent have ended."""
        return int(self._values.get(f"answers:{agent}", "0"))

    def set_answers(self, agent: str, count: int) -> None:
        """Set how many questions of an agent have ended."""
        self._values[f"answers:{agent}"] = str(count)
