"""Events as a machine reports them."""

from outrider.contract.events import AgentEvent, EventName
from outrider.contract.ids import derived_id, new_id

DAEMON = "machine_01jz3v7k2qf8ar4n0w5h6xt9cd"


def agent_event(name: EventName = EventName.GENERATING_STARTED, **fields: object) -> AgentEvent:
    """Return an event as a machine reports it."""
    values: dict[str, object] = {
        "id": new_id("evt"),
        "event": name,
        "session_id": "session_1",
        "ide_id": f"{DAEMON}:cli:claude-code",
        "ide_type": "claude-code",
        "chat_title": "Fix the build",
        "duration": 2.5 if name == EventName.GENERATING_COMPLETED else None,
        "timestamp": 1_750_000_000_000,
    }
    return AgentEvent(**values | fields)  # type: ignore[arg-type]


def event_id(number: int) -> str:
    """Return the id of the event with a number: whoever makes it again gives it the same."""
    return derived_id("evt", 1_750_000_000_000 + number, str(number))
