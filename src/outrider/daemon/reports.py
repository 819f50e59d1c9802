"""What this machine reports of itself, within what the service keeps of a machine."""

from typing import Final

import msgspec
import structlog

from outrider.contract.frames import Snapshot
from outrider.contract.limits import MAX_SESSIONS, MAX_STATE_BYTES, fitted
from outrider.contract.resources import PendingAction, Session

_SHORT_TEXT: Final = 120
_SHORT_LIST: Final = 4

_log = structlog.get_logger(__name__)


class ReportBudget:
    """Keeps sessions within the bytes that the service keeps of this machine.

    A session is reported in full while half of the bytes are free, and with short texts beyond
    that: so what is there first does not take the room of what comes later. One for which there
    is no room even so is left out.

    Args:
        limit: bytes of JSON, of all sessions and what does not change with them.
    """

    def __init__(self, limit: int = MAX_STATE_BYTES) -> None:
        self._limit = limit
        self._fixed = 0
        self._sizes: dict[str, int] = {}
        self._used = 0

    def begin(self, report: Snapshot) -> Snapshot:
        """Return a whole report, and count from it."""
        report = fitted(report)
        self._fixed = self._used = _size(report.machine) + _size(report.providers)
        self._sizes.clear()
        latest_first = sorted(report.sessions, key=lambda one: one.last_activity_at, reverse=True)
        kept = {one.id: one for session in latest_first if (one := self.fit(session)) is not None}
        report.sessions = [kept[one.id] for one in report.sessions if one.id in kept]
        return report

    def fit(self, session: Session) -> Session | None:
        """Return the session as it is to be reported now; None if there is no room for it."""
        session = fitted(session)
        others = self._used - self._sizes.get(session.id, 0)
        size = _size(session)
        if others + size > self._limit // 2:
            session = _short(session)
            size = _size(session)
        is_one_more = session.id not in self._sizes
        if others + size > self._limit or (is_one_more and len(self._sizes) >= MAX_SESSIONS):
            _log.error("session not reported: too many, or too long", session=session.id)
            return None
        self._sizes[session.id] = size
        self._used = others + size
        return session

    def remove(self, session_id: str) -> None:
        """Count a session no more."""
        self._used -= self._sizes.pop(session_id, 0)


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))


def _short(session: Session) -> Session:
    """Return a session whose texts are short. Its path and its ids stay as they are."""
    pending = session.pending_action
    return msgspec.structs.replace(
        session,
        title=_cut(session.title),
        error=_cut(session.error),
        agents=session.agents[:_SHORT_LIST],
        pending_action=None
        if pending is None
        else PendingAction(
            id=pending.id,
            message=_cut(pending.message) or "",
            options=[
                msgspec.structs.replace(option, label=_cut(option.label) or "")
                for option in pending.options
            ],
        ),
    )


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHORT_TEXT else text[: _SHORT_TEXT - 1] + "…"
