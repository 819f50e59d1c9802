"""Twenty turns with one agent, and the samples of each."""

import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.agents.rig import Rig, as_json
from benchmarks.agents.sampling import Sample, Sampler, Screen
from benchmarks.processes import BenchmarkError

DIALOGS: Final = {
    "claude-code": r"Do you want to proceed\?",
    "codex": r"Would you like to run",
    "opencode": r"Permission required",
    "gemini-cli": r"Allow execution",
    "aider": r"\(Y\)es/\(N\)o[^\n]*\[Yes\]:\Z",
}
"""What is on the screen while an agent asks; without one, the last byte of the model counts."""

APPROVALS: Final = 5
MESSAGES: Final = (
    *(f"hello number {number}" for number in range(1, 7)),
    *(f"take your time {number} SLOW:0.03" for number in range(1, 6)),
    "think about it in silence SILENT:20",
    "a long one LONG SLOW:0.005",
    "a neat one MD",
    "another neat one MD SLOW:0.05",
)
_PAUSE: Final = 0.5
_LIMIT: Final = 90.0


@dataclass
class Turns:
    """What was measured: seconds for each turn; `wrong` has each sample that was, and why."""

    accepted: list[float] = field(default_factory=list)
    generating: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    samples: int = 0


def take_turns(rig: Rig, environment: dict[str, str]) -> Turns:
    """Take twenty turns with an idle agent.

    Raises:
        BenchmarkError: the agent does not do what it was asked to.
    """
    turns = Turns()
    with Sampler(rig) as sampler:
        for message in MESSAGES:
            _plain(rig, sampler, turns, message)
        for number in range(APPROVALS):
            _approval(rig, sampler, turns, rig.kind.wants(f"touch mark-{number}"), environment)
        turns.samples = len(sampler.samples)
    return turns


def _plain(rig: Rig, sampler: Sampler, turns: Turns, message: str) -> None:
    sent, accepted = _send(rig, turns, message)
    first, last = _answer(rig, sent, message)
    began = _until(rig, sampler, "generating", sent)
    # An agent may have answered before its record has the message, upon which `send` waits.
    ended = _until(rig, sampler, "idle", max(last, began.answered))
    turns.generating.append(max(0.0, began.answered - first))
    turns.idle.append(max(0.0, ended.answered - last))
    _check(turns, sampler.between(accepted, last), {"generating"}, message)
    _check(turns, sampler.between(last, ended.answered), {"generating", "idle"}, message)
    _rest(turns, sampler, ended, message)


def _approval(
    rig: Rig, sampler: Sampler, turns: Turns, message: str, environment: dict[str, str]
) -> None:
    pattern = DIALOGS.get(rig.kind.type, r"(?!)")
    with Screen(rig, pattern, environment) as screen:
        sent, accepted = _send(rig, turns, message)
        first, shown = _answer(rig, sent, message)
        asks = _until(rig, sampler, "waiting_approval", sent)
        deadline = time.time() + (2 if rig.kind.type in DIALOGS else 0)
        while screen.seen is None and time.time() < deadline:
            time.sleep(0.005)
    turns.generating.append(max(0.0, _until(rig, sampler, "generating", sent).answered - first))
    turns.asking.append(max(0.0, asks.answered - (screen.seen or shown)))
    _check(turns, sampler.between(accepted, asks.asked), {"generating"}, message)
    time.sleep(_PAUSE)
    answering = time.time()
    _check(turns, sampler.between(asks.answered, answering), {"waiting_approval"}, message)
    rig.agent.post("approve", {"action": "approve"})
    approved = time.time()
    ended = _until(rig, sampler, "idle", approved)
    last = max(entry["t"] for entry in as_json(rig.model.log) if entry["ev"] == "last")
    if last > answering:  # the model got the command's result
        turns.idle.append(max(0.0, ended.answered - last))
        _check(turns, sampler.between(approved, last), {"generating"}, message)
    _rest(turns, sampler, ended, message)


def _send(rig: Rig, turns: Turns, message: str) -> tuple[float, float]:
    """Send a message; return when, and when it was accepted."""
    sent = time.time()
    rig.agent.send(message)
    accepted = time.time()
    turns.accepted.append(accepted - sent)
    return sent, accepted


def _answer(rig: Rig, sent: float, message: str) -> tuple[float, float]:
    """Wait for the model's answer; return when its first and its last byte were sent.

    An agent may ask the model for a title as well, with the same words: the request with the
    most tools is the one that counts.
    """
    deadline = time.time() + _LIMIT
    while time.time() < deadline:
        log = as_json(rig.model.log)
        asked = [
            entry
            for entry in log
            if entry["ev"] == "req" and entry["t"] >= sent and message in entry["text"]
        ]
        if asked:
            chosen = max(asked, key=lambda entry: len(entry["tools"]))["id"]
            times = {e["ev"]: float(e["t"]) for e in log if e["id"] == chosen}
            if "last" in times:
                return times["first"], times["last"]
        time.sleep(0.01)
    raise BenchmarkError(f"{rig.kind.type}: the model was not asked {message!r}, or not to the end")


def _until(rig: Rig, sampler: Sampler, status: str, after: float) -> Sample:
    sample = sampler.first(status, after, _LIMIT)
    if sample is None:
        newest = sampler.samples[-1].status if sampler.samples else "nothing"
        shown = rig.agent.get("chat/debug")["bundle"]["parser"]
        raise BenchmarkError(
            f"{rig.kind.type}: never {status}, but {newest}; {sampler.failure or shown}"
        )
    return sample


def _rest(turns: Turns, sampler: Sampler, ended: Sample, message: str) -> None:
    """Check that the agent stays idle after its turn."""
    time.sleep(_PAUSE)
    _check(turns, sampler.between(ended.answered, time.time()), {"idle"}, f"after {message}")


def _check(turns: Turns, samples: list[Sample], right: set[str], message: str) -> None:
    turns.wrong += [f"{s.status} in {message!r}" for s in samples if s.status not in right]
