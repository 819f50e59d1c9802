"""How the tests run one kind of agent, and what that kind is able to do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider.contract.resources import OptionKind


def _wants_a_tool(command: str) -> str:
    return f"please TOOL[{command}]"


@dataclass(frozen=True)
class AgentKind:
    """One kind of agent: everything that the scenario, the same for all, must know of it.

    Attributes:
        seed: prepares a HOME for a project with the stub model's URL: answers what the agent would
            ask for at its first start there.
        environment: what is added to a clean environment, by the stub model's URL.
        bin: the folder of its command, below the one it is installed in.
        wants: returns a message upon which the model runs a shell command.
        offers: what the agent then lets the person choose from.
        records_tools: whether its transcript has tool calls with their results.
        trusts: whether it asks before it works in a folder that it has not seen.
        retries: whether it tries again when the model answers 500, until it is interrupted.
        bad_request: a part of the error that it shows when the model answers 400.
        interrupt: the keys that end a turn.
        trims: whether it takes white space off both ends of a message itself.
        silence: seconds for which a model may be silent without seeming to have finished.
        seconds: how long it may take to do something, on a busy machine.
        resumes: whether it can continue the chat of a session that has ended.
        found: seconds that a restarted daemon may take to know what it is doing.
        cannot: the tests that this agent cannot pass, with the reason.
    """

    type: str
    seed: Callable[[Path, Path, str], None]
    environment: Callable[[str], dict[str, str]]
    bin: str = "node_modules/.bin"
    wants: Callable[[str], str] = _wants_a_tool
    offers: tuple[OptionKind, ...] = ("allow_once", "allow_always", "reject_once")
    records_tools: bool = True
    trusts: bool = True
    retries: bool = True
    bad_request: str = "400"
    interrupt: tuple[str, ...] = ("Escape",)
    trims: bool = False
    silence: int = 20
    seconds: float = 90
    resumes: bool = True
    found: float = 10
    cannot: Mapping[str, str] = field(default_factory=dict, hash=False)
