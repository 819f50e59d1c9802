"""How soon, how fast and at what cost an agent over the Agent Client Protocol is observed."""

import statistics
import time
from typing import Final

from benchmarks.bench import Bench, Sections
from benchmarks.machine_agent import SCRIPTED, Agent, MachineAgent, machine_agent
from benchmarks.processes import MEGABYTE, BenchmarkError
from benchmarks.report import Figure, Section, Target, percentile
from benchmarks.service import Installation

_PACE: Final = 1000
"""Chunks a second that a paced agent streams."""

_SOON: Final = Target("at most", 20)
_FAST: Final = Target("at least", _PACE)
_NOT_BEHIND: Final = Target("at most", 100)
_LEAN: Final = Target("at most", 5)

_A_SECOND: Final = 30
_LEAST_SECONDS: Final = 3
"""On a busy computer, a shorter turn may be over before its status is requested."""

_AT_ONCE: Final = 3
_SESSIONS: Final = 20
_FLOOD: Final = 20_000
_LARGE: Final = 10_000_000


def acp(bench: Bench) -> Sections:
    """Measure with scripted agents, which do nothing but what is measured."""
    # The memory is that of a daemon that has done nothing else.
    with machine_agent(Installation(bench.stage, "memory"), providers=SCRIPTED) as machine:
        yield _memory(machine, bench)
    with machine_agent(Installation(bench.stage, "service"), providers=SCRIPTED) as machine:
        yield _delays(machine, bench)
        yield _streams(machine, bench)


def _delays(machine: MachineAgent, bench: Bench) -> Section:
    medians, slowest, alone = [], [], []
    agent = machine.launch("scripted")
    for _ in bench.each_round("delays"):
        alone.append(agent.status_latency())
        found = _delays_of(agent, max(bench.seconds, _LEAST_SECONDS) * _A_SECOND)
        medians.append(statistics.median(found))
        slowest.append(percentile(found, 99))
    agent.stop()
    return Section(
        "ACP: from an agent's notification to the status over REST",
        [
            Figure("delay, median", "ms", medians, target=_SOON),
            Figure("delay, 99th percentile", "ms", slowest),
            Figure("of it, a status request alone, median", "ms", alone),
        ],
    )


def _delays_of(agent: Agent, count: int) -> list[float]:
    """Return the milliseconds from each notification to the first answer that shows it.

    The agent calls its session by the time at which it writes that.
    """
    agent.send(f"clock {count}")
    found: list[float] = []
    known = agent.status()["title"]
    while (status := agent.status())["status"] == "generating":
        if status["title"] != known:
            known = status["title"]
            found.append((time.time() - float(known)) * 1000)
    if not found:
        raise BenchmarkError("a turn was over before its status was read: use more --seconds")
    return found


def _streams(machine: MachineAgent, bench: Bench) -> Section:
    wrote, behind, last, cost, together, flood = [], [], [], [], [], []
    agents = [machine.launch("scripted") for _ in range(_AT_ONCE)]
    for _ in bench.each_round("streams"):
        before = machine.program.cpu_seconds()
        lags = _lags(agents[:1], bench.seconds)
        wrote.append(_rate(agents[0]))
        cost.append((machine.program.cpu_seconds() - before) / bench.seconds * 100)
        behind.append(statistics.median(lags))
        last.append(lags[-1])
        together.append(_lags(agents, bench.seconds)[-1])
        flood.append(_flood(agents[0]))
    for agent in agents:
        agent.stop()
    of_all = f"at the end of the last of {_AT_ONCE} streams at once"
    return Section(
        f"ACP: streams of {_PACE:,} chunks a second",
        [
            Figure("chunks that the agent wrote", "1/s", wrote),
            Figure("chat over REST behind the agent, median", "ms", behind, target=_NOT_BEHIND),
            Figure("at the end of the stream", "ms", last, target=_NOT_BEHIND),
            Figure(of_all, "ms", together, target=_NOT_BEHIND),
            Figure("processor time of the daemon, one stream", "%", cost),
            Figure("chunks of an agent that does not wait", "1/s", flood, target=_FAST),
        ],
    )


def _lags(agents: list[Agent], seconds: int) -> list[float]:
    """Return the milliseconds by which the chats are behind their agents, the last at the end.

    Each chunk is the time at which the agent writes it.
    """
    for agent in agents:
        agent.send(f"paced {seconds * _PACE}")
    found: list[float] = []
    while any(agent.status()["status"] == "generating" for agent in agents):
        for agent in agents:
            times = agent.newest_message().split()
            if len(times) > 1:
                found.append((time.time() - float(times[-1])) * 1000)
        time.sleep(0.05)
    ended = time.time()
    texts = [agent.newest_message().split() for agent in agents]
    assert all(len(times) == seconds * _PACE for times in texts), "chunks are missing"
    return [*found, (ended - max(float(times[-1]) for times in texts)) * 1000]


def _rate(agent: Agent) -> float:
    """Return the chunks per second that a paced agent has written."""
    times = [float(time) for time in agent.newest_message().split()]
    return (len(times) - 1) / (times[-1] - times[0])


def _flood(agent: Agent) -> float:
    """Return the chunks per second that are taken from an agent that writes as fast as it can."""
    began = time.time()
    agent.send(f"stream {_FLOOD}")
    return _FLOOD / (agent.wait_until_idle() - began)


def _memory(machine: MachineAgent, bench: Bench) -> Section:
    bench.progress(f"memory of {_SESSIONS} sessions")
    warm = _used(machine)
    before, _ = machine.program.memory()
    agents = [_used(machine) for _ in range(_SESSIONS)]
    after, _ = machine.program.memory()
    agents[0].send(f"big {_LARGE}")
    agents[0].wait_until_idle()
    large, _ = machine.program.memory()
    for agent in [warm, *agents]:
        agent.stop()
    each, more = (after - before) / _SESSIONS, large - after
    return Section(
        "ACP: memory of the daemon (RSS)",
        [
            Figure(f"a session, of {_SESSIONS}", "MB", [each], target=_LEAN),
            Figure(f"more, after a message of {_LARGE / MEGABYTE:g} MB", "MB", [more]),
        ],
    )


def _used(machine: MachineAgent) -> Agent:
    """Launch an agent and have a turn with it."""
    agent = machine.launch("scripted")
    agent.send("tool")
    agent.wait_until_idle()
    return agent
