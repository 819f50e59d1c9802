"""Limits the size of what this machine reports, as the service stores a bounded state."""

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
    """Keeps the reported sessions within the bytes that the service stores for a machine.

    Sessions are reported in full until half of the bytes are used, and with shortened texts
    beyond that, so that early sessions do not take the space of later ones. A session that does
    not fit even so is not reported.

    Args:
        limit: bytes of JSON of all sessions, plus the machine and its providers.
    """

    def __init__(self, limit: int = MAX_STATE_BYTES) -> None:
        self._limit = limit
        self._fixed = 0
        self._sizes: dict[str, int] = {}
        self._used = 0

    def begin(self, report: Snapshot) -> Snapshot:
        """Return a complete report that fits, and start counting from it."""
        report = fitted(report)
        self._fixed = self._used = _size(report.machine) + _size(report.providers)
        self._sizes.clear()
        latest_first = sorted(report.sessions, key=lambda one: one.last_activity_at, reverse=True)
        fitting = {
            one.id: one for session in latest_first if (one := self.fit(session)) is not None
        }
        report.sessions = [fitting[one.id] for one in report.sessions if one.id in fitting]
        return report

    def fit(self, session: Session) -> Session | None:
        """Return the session as it may be reported; None if it does not fit even shortened."""
        session = fitted(session)
        others = self._used - self._sizes.get(session.id, 0)
        size = _size(session)
        if others + size > self._limit // 2:
            session = _short(session)
            size = _size(session)
        is_new = session.id not in self._sizes
        if others + size > self._limit or (is_new and len(self._sizes) >= MAX_SESSIONS):
            _log.error("session not reported, report limit reached", session=session.id)
            return None
        self._sizes[session.id] = size
        self._used = others + size
        return session

    def remove(self, session_id: str) -> None:
        """Release the bytes of a session."""
        self._used -= self._sizes.pop(session_id, 0)


def _size(value: object) -> int:
    return len(msgspec.json.encode(value))


def _short(session: Session) -> Session:
    """Return a session with shortened texts. Its path and its ids are never shortened."""
    pending = session.pending_action
    return msgspec.structs.replace(
        session,
        title=_shorten(session.title),
        error=_shorten(session.error),
        agents=session.agents[:_SHORT_LIST],
        pending_action=None
        if pending is None
        else PendingAction(
            id=pending.id,
            message=_shorten(pending.message) or "",
            options=[
                msgspec.structs.replace(option, label=_shorten(option.label) or "")
                for option in pending.options
            ],
        ),
    )


def _shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= _SHORT_TEXT else text[: _SHORT_TEXT - 1] + "…"
