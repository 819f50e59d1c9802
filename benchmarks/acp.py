"""How soon, how fast and at what cost an agent over the Agent Client Protocol is observed."""

import statistics
import time
from typing import Final

from benchmarks.bench import Bench, Sections, median_latency
from benchmarks.machine_agent import SCRIPTED, MachineAgent, machine_agent, wait_until_idle
from benchmarks.processes import MEGABYTE, BenchmarkError
from benchmarks.report import Figure, Section, Target, percentile
from benchmarks.service import Installation
from outrider.sdk import Agent

_PACE: Final = 1000
"""Chunks a second that a paced agent streams."""

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
    median = Figure("delay, median", "ms", target=Target("at most", 20))
    tail = Figure("delay, 99th percentile", "ms")
    alone = Figure("of it, a status request alone, median", "ms")
    agent = machine.launch("scripted")
    for _ in bench.each_round("delays"):
        alone.runs.append(median_latency(agent.status, 1))
        found = _delays_of(agent, max(bench.seconds, _LEAST_SECONDS) * _A_SECOND)
        median.runs.append(statistics.median(found))
        tail.runs.append(percentile(found, 99))
    agent.stop()
    title = "ACP: from an agent's notification to the status over REST"
    return Section(title, [median, tail, alone])


def _delays_of(agent: Agent, count: int) -> list[float]:
    """Return the milliseconds from each notification to the first answer that shows it.

    The agent calls its session by the time at which it writes that.
    """
    agent.send(f"clock {count}")
    found: list[float] = []
    known = agent.status().title
    while (state := agent.status()).status == "generating":
        if state.title and state.title != known:
            known = state.title
            found.append((time.time() - float(known)) * 1000)
    if not found:
        raise BenchmarkError("a turn was over before its status was read: use more --seconds")
    return found


def _streams(machine: MachineAgent, bench: Bench) -> Section:
    soon = Target("at most", 100)
    wrote = Figure("chunks that the agent wrote", "1/s")
    behind = Figure("chat over REST behind the agent, median", "ms", target=soon)
    last = Figure("at the end of the stream", "ms", target=soon)
    together = Figure(f"at the end of the last of {_AT_ONCE} streams at once", "ms", target=soon)
    cost = Figure("processor time of the daemon, one stream", "%")
    flood = Figure("chunks of an agent that does not wait", "1/s", target=Target("at least", _PACE))
    agents = [machine.launch("scripted") for _ in range(_AT_ONCE)]
    for _ in bench.each_round("streams"):
        before = machine.program.cpu_seconds()
        lags = _lags(agents[:1], bench.seconds)
        wrote.runs.append(_rate(agents[0]))
        cost.runs.append((machine.program.cpu_seconds() - before) / bench.seconds * 100)
        behind.runs.append(statistics.median(lags))
        last.runs.append(lags[-1])
        together.runs.append(_lags(agents, bench.seconds)[-1])
        began = time.time()
        agents[0].send(f"stream {_FLOOD}")
        flood.runs.append(_FLOOD / (wait_until_idle(agents[0]) - began))
    for agent in agents:
        agent.stop()
    figures = [wrote, behind, last, together, cost, flood]
    return Section(f"ACP: streams of {_PACE:,} chunks a second", figures)


def _lags(agents: list[Agent], seconds: int) -> list[float]:
    """Return the milliseconds by which the chats are behind their agents, the last at the end.

    Each chunk is the time at which the agent writes it.
    """
    for agent in agents:
        agent.send(f"paced {seconds * _PACE}")
    found: list[float] = []
    while any(agent.status().status == "generating" for agent in agents):
        for agent in agents:
            times = _newest(agent)
            if len(times) > 1:
                found.append((time.time() - float(times[-1])) * 1000)
        time.sleep(0.05)
    ended = time.time()
    texts = [_newest(agent) for agent in agents]
    assert all(len(times) == seconds * _PACE for times in texts), "chunks are missing"
    return [*found, (ended - max(float(times[-1]) for times in texts)) * 1000]


def _newest(agent: Agent) -> list[str]:
    """Return the words of the newest message."""
    messages = agent.chat(limit=1).messages
    return messages[-1].content.split() if messages else []


def _rate(agent: Agent) -> float:
    """Return the chunks per second that a paced agent has written."""
    times = [float(time) for time in _newest(agent)]
    return (len(times) - 1) / (times[-1] - times[0])


def _memory(machine: MachineAgent, bench: Bench) -> Section:
    bench.progress(f"memory of {_SESSIONS} sessions")
    _use(machine)  # what the first one loads is not counted
    before, _ = machine.program.memory()
    agents = [_use(machine) for _ in range(_SESSIONS)]
    after, _ = machine.program.memory()
    agents[0].send(f"big {_LARGE}")
    wait_until_idle(agents[0])
    large, _ = machine.program.memory()
    each = Figure(f"a session, of {_SESSIONS}", "MB", target=Target("at most", 5))
    each.runs.append((after - before) / _SESSIONS)
    more = Figure(f"more, after a message of {_LARGE / MEGABYTE:g} MB", "MB", [large - after])
    return Section("ACP: memory of the daemon (RSS)", [each, more])


def _use(machine: MachineAgent) -> Agent:
    """Launch an agent and have a turn with it."""
    agent = machine.launch("scripted")
    agent.send("tool")
    wait_until_idle(agent)
    return agent
