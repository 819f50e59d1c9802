"""What agents were kept from: in the log, and told to the service for the account's audit.

An agent may try again and again. Of a session's refusals in a minute the first ones are told,
and of the others the 64th, the 128th and so on, each with how many went untold before it: a
flood is seen, and floods nothing.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from outrider.contract.events import MAX_REFUSED_TARGET, Refused

TOLD_A_MINUTE: Final = 32
"""How many of a session's refusals are told before they are counted only; a power of two."""

_MINUTE_MS: Final = 60_000
_SESSIONS: Final = 1_000

_log = structlog.get_logger(__name__)


@dataclass
class _Minute:
    began: int
    count: int = 0
    untold: int = 0


class RefusalSink:
    """Takes every refusal; tells those that are to be told.

    Args:
        tell: takes them, in order.
        clock: returns the time in epoch milliseconds.
    """

    def __init__(self, tell: Callable[[Refused], None], clock: Callable[[], int]) -> None:
        self._tell = tell
        self._clock = clock
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()

    def note(self, session_id: str, action: str, target: str) -> None:
        """Note that a session's agent was kept from `action` on `target`."""
        now = self._clock()
        minute = self._minute(session_id, now)
        minute.count += 1
        if minute.count > TOLD_A_MINUTE and minute.count & (minute.count - 1):
            minute.untold += 1
            return
        untold, minute.untold = minute.untold, 0
        refused = Refused(
            session_id=session_id,
            action=action,
            target=target[:MAX_REFUSED_TARGET],
            timestamp=now,
            untold=untold,
        )
        _log.warning(
            "an agent was refused",
            audit=True,
            session=session_id,
            action=action,
            target=refused.target,
            untold=untold,
        )
        self._tell(refused)

    def _minute(self, session_id: str, now: int) -> _Minute:
        minute = self._minutes.get(session_id)
        if minute is None:
            minute = self._minutes[session_id] = _Minute(now)
            if len(self._minutes) > _SESSIONS:
                self._minutes.popitem(last=False)
        elif not 0 <= now - minute.began < _MINUTE_MS:
            minute.began, minute.count = now, 0
        return minute
