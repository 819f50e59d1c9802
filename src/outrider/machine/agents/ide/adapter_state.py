"""What the journal keeps for the adapter of an IDE, typed."""

from collections.abc import Sequence

from outrider.machine.agents.adapter import AdapterState, StateText
from outrider.machine.agents.ide.program import Program
from outrider.machine.agents.provider_spec import CDP


class IdeState(AdapterState):
    """What the journal keeps of an IDE.

    Attributes:
        endpoint: the address of the debugging port, None before it is known.
        awaiting_agent: the type of the agent that has accepted a message and not begun to answer.
    """

    endpoint = StateText("endpoint")
    awaiting_agent = StateText("awaits")

    @property
    def cdp(self) -> bool:
        """Whether the IDE was to be launched with its debugging port."""
        return self.values.get(CDP) != "off"

    @property
    def programs(self) -> list[Program]:
        """The programs that were started for the IDE, the newest first.

        Empty if the IDE was adopted.
        """
        return [Program.parse(text) for text in self.values.get("programs", "").split()]

    @programs.setter
    def programs(self, programs: Sequence[Program]) -> None:
        self.values["programs"] = " ".join(map(str, programs))

    def answers(self, agent: str) -> int:
        """Return how many questions of an agent have ended."""
        return int(self.values.get(f"answers:{agent}", "0"))

    def set_answers(self, agent: str, count: int) -> None:
        """Set how many questions of an agent have ended."""
        self.values[f"answers:{agent}"] = str(count)
