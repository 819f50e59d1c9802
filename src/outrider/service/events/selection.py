"""Which events a client gets: by the scopes of its credential and by its filters."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.contract.event_stream import EventQuery
from outrider.contract.events import EventName
from outrider.service.events.log import LoggedEvent

AGENT_KINDS: Final = frozenset({"agent", "chat", "session", "approval", "queue"})
"""The kinds of events, the part of a name before the colon, that are about agents."""

MACHINE_KINDS: Final = frozenset({"machine"})

DELTA: Final = "chat:delta"
"""The name of the frames that are not events; it may stand in a filter too."""


class _Subject(msgspec.Struct, rename="camel"):
    """The part of an event's body that says what it is about."""

    daemon_id: str = ""
    target_id: str = ""
    ide_id: str = ""


_subject: Final = msgspec.json.Decoder(_Subject)


class UnknownPattern(ValueError):
    """A pattern that no event fits; its text is the pattern."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects events.

    Attributes:
        kinds: the kinds of events that the credential may read.
        names: the names that are wanted, and the kinds that are wanted as a whole; None for all.
        daemon_id: the only machine that is wanted, if any.
        target: the only session that is wanted, as a target id, if any.
        deltas: whether deltas are wanted; they are about agents.
    """

    kinds: frozenset[str]
    names: frozenset[str] | None = None
    daemon_id: str | None = None
    target: str | None = None
    deltas: bool = False

    def wants(self, event: LoggedEvent) -> bool:
        """Return whether an event is selected."""
        if not self.wants_name(event.name):
            return False
        if self.daemon_id is None and self.target is None:
            return True
        subject = _subject.decode(event.body)
        return self._is_about(subject.daemon_id, (subject.target_id, subject.ide_id))

    def wants_name(self, name: str) -> bool:
        """Return whether events of this name may be selected."""
        kind = name.partition(":")[0]
        if kind not in self.kinds:
            return False
        return self.names is None or name in self.names or kind in self.names

    def wants_delta(self, daemon_id: str, targets: Iterable[str]) -> bool:
        """Return whether a delta is selected of the session that `targets` name."""
        return self.deltas and self._is_about(daemon_id, targets)

    def _is_about(self, daemon_id: str, targets: Iterable[str]) -> bool:
        if self.daemon_id is not None and self.daemon_id != daemon_id:
            return False
        return self.target is None or self.target in targets


def select(query: EventQuery, kinds: frozenset[str]) -> Selection:
    """Return what a query selects of the kinds that a credential may read.

    Raises:
        UnknownPattern: `events` names an event that does not exist.
    """
    return Selection(
        kinds=kinds,
        names=None if query.events is None else _names(query.events),
        daemon_id=query.daemon_id,
        target=query.target,
        deltas=query.deltas == "true" and "chat" in kinds,
    )


def _names(patterns: str) -> frozenset[str] | None:
    """Return the names and kinds in a list of patterns; None for everything."""
    wanted = {pattern.strip() for pattern in patterns.split(",")} - {""}
    if "*" in wanted or not wanted:
        return None
    names = set()
    for pattern in wanted:
        kind, _, rest = pattern.partition(":")
        if rest == "*" and kind in AGENT_KINDS | MACHINE_KINDS:
            names.add(kind)
        elif pattern in _KNOWN:
            names.add(pattern)
        else:
            raise UnknownPattern(pattern)
    return frozenset(names)


_KNOWN: Final = frozenset({*EventName, DELTA})
