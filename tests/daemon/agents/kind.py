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

    `bin` is the folder of its command, below the one it is installed in. `seed` gives a HOME
    what the agent would ask for at its first start in the project; `environment` is added
    to a clean environment: both are told the stub model's URL.

    `wants` is a message upon which the model wants to run a shell command, `offers` is
    what the agent then lets the person choose from. `trusts` tells that it asks before it
    works in a folder that it has not seen. `retries` tells that it tries again when the model
    answers 500, until it is interrupted by the keys `interrupt`. `bad_request` stands in the
    error that it shows when the model answers 400.

    `trims` tells that it takes white space off both ends of a message itself. `silence` is for how
    many seconds a model is silent that must not be taken for one that has finished. `seconds` is
    how long it may take to do something, on a busy machine.

    `resumes` tells that it can continue the chat of a session that has ended.

    `found` is how long (seconds) a daemon that starts again may take to know what it is doing.

    `cannot` has the tests that this agent cannot pass, with the reason.
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
