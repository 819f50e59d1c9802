"""Filters and scopes: which events a client gets."""

import msgspec
import pytest

from outrider.contract.event_stream import EventQuery
from outrider.contract.events import EventName
from outrider.service.events.log import LoggedEvent
from outrider.service.events.selection import (
    AGENT_KINDS,
    MACHINE_KINDS,
    Selection,
    UnknownPattern,
    select,
)

ALL = AGENT_KINDS | MACHINE_KINDS
ONE, OTHER = "machine_1", "machine_2"


def event(name: str, daemon: str = ONE, session: str = "session_1") -> LoggedEvent:
    body = {
        "event": name,
        "daemonId": daemon,
        "targetId": f"{daemon}:session:{session}",
        "ideId": f"{daemon}:cli:claude-code",
    }
    return LoggedEvent(1, name, msgspec.json.encode(body))


def names(selection: Selection) -> set[str]:
    return {name for name in EventName if selection.wants(event(name))}


def test_a_scope_gives_its_own_kinds() -> None:
    agents = names(select(EventQuery(), AGENT_KINDS))
    machines = names(select(EventQuery(), MACHINE_KINDS))
    assert machines == {EventName.MACHINE_CONNECTED, EventName.MACHINE_DISCONNECTED}
    assert agents == set(EventName) - machines - {EventName.WEBHOOK_TEST}
    assert names(select(EventQuery(), ALL)) == agents | machines


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("agent:error", {"agent:error"}),
        ("agent:error, machine:connected", {"agent:error", "machine:connected"}),
        ("machine:*,agent:error", {"agent:error", "machine:connected", "machine:disconnected"}),
        ("chat:delta", set()),
        ("webhook:test", set()),
    ],
)
def test_patterns(patterns: str, expected: set[str]) -> None:
    assert names(select(EventQuery(events=patterns), ALL)) == expected


@pytest.mark.parametrize("patterns", ["*", "", ",", "agent:error,*"])
def test_patterns_for_everything(patterns: str) -> None:
    assert names(select(EventQuery(events=patterns), ALL)) == names(select(EventQuery(), ALL))


@pytest.mark.parametrize("patterns", ["agent", "agent:", "agent:err*", "*:error", "Agent:*", "x:*"])
def test_what_is_no_pattern(patterns: str) -> None:
    with pytest.raises(UnknownPattern, match="^" + patterns.replace("*", r"\*") + "$"):
        select(EventQuery(events=f"agent:error,{patterns}"), ALL)


def test_a_filter_adds_nothing_to_a_scope() -> None:
    assert names(select(EventQuery(events="machine:*,agent:error"), AGENT_KINDS)) == {"agent:error"}


def test_a_machine() -> None:
    selection = select(EventQuery(daemon_id=ONE), ALL)
    assert selection.wants(event("agent:error"))
    assert not selection.wants(event("agent:error", OTHER))


def test_a_session_by_each_of_its_target_ids() -> None:
    exact = select(EventQuery(target=f"{ONE}:session:session_1"), ALL)
    assert exact.wants(event("agent:error"))
    assert not exact.wants(event("agent:error", session="session_2"))
    assert not exact.wants(event("agent:error", OTHER))
    by_type = select(EventQuery(target=f"{ONE}:cli:claude-code"), ALL)
    assert by_type.wants(event("agent:error"))
    assert not by_type.wants(event("agent:error", OTHER))
    assert not exact.wants(LoggedEvent(1, "machine:connected", b'{"daemonId":"machine_1"}'))


def test_deltas_are_for_those_who_ask_and_may_read_agents() -> None:
    targets = (f"{ONE}:session:session_1", f"{ONE}:cli:claude-code")
    assert not select(EventQuery(), ALL).wants_delta(ONE, targets)
    assert not select(EventQuery(deltas="true"), MACHINE_KINDS).wants_delta(ONE, targets)
    assert select(EventQuery(deltas="true", events="agent:*"), ALL).wants_delta(ONE, targets)
    for target in targets:
        assert select(EventQuery(deltas="true", target=target), ALL).wants_delta(ONE, targets)
    other = f"{ONE}:cli:codex"
    assert not select(EventQuery(deltas="true", target=other), ALL).wants_delta(ONE, targets)
    assert not select(EventQuery(deltas="true", daemon_id=OTHER), ALL).wants_delta(ONE, targets)
