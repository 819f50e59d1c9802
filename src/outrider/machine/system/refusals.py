"""Refused requests of agents: logged, and sent to the service for the account's audit log.

An agent may repeat a refused request at any rate. Per session and minute, the first 32 refusals
are reported, after that the 64th, the 128th and so on. Each report carries the number of refusals
that were suppressed since the last one, so that a flood is visible but does not fill the log.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from outrider.contract.events import MAX_REFUSED_TARGET, Refused

REPORTED_PER_MINUTE: Final = 32
"""Refusals of a session that are reported each minute before suppression; a power of two."""

MAX_SESSIONS: Final = 1_000
"""Sessions whose refusals are counted; beyond it the one counted first is forgotten."""

_MINUTE_MS: Final = 60_000

_log = structlog.get_logger(__name__)


@dataclass
class _Minute:
    """The refusals of one session in the current minute."""

    started: int
    count: int = 0
    suppressed: int = 0


class RefusalSink:
    """Receives every refusal, and reports them at a bounded rate.

    Args:
        report: receives the refusals that are to be sent to the service, in order.
        clock: returns the time in epoch milliseconds.
    """

    def __init__(self, report: Callable[[Refused], None], clock: Callable[[], int]) -> None:
        self._report = report
        self._clock = clock
        self._minutes: OrderedDict[str, _Minute] = OrderedDict()

    def note(self, session_id: str, action: str, target: str) -> None:
        """Record that `action` on `target` was refused to a session's agent."""
        now = self._clock()
        minute = self._current_minute(session_id, now)
        minute.count += 1
        is_power_of_two = minute.count & (minute.count - 1) == 0
        if minute.count > REPORTED_PER_MINUTE and not is_power_of_two:
            minute.suppressed += 1
            return
        suppressed, minute.suppressed = minute.suppressed, 0
        refused = Refused(
            session_id=session_id,
            action=action,
            target=target[:MAX_REFUSED_TARGET],
            timestamp=now,
            suppressed=suppressed,
        )
        _log.warning(
            "agent request refused",
            audit=True,
            session=session_id,
            action=action,
            target=refused.target,
            suppressed=suppressed,
        )
        self._report(refused)

    def _current_minute(self, session_id: str, now: int) -> _Minute:
        minute = self._minutes.get(session_id)
        if minute is None:
            minute = self._minutes[session_id] = _Minute(now)
            if len(self._minutes) > MAX_SESSIONS:
                self._minutes.popitem(last=False)
        elif not 0 <= now - minute.started < _MINUTE_MS:  # negative: the clock was set back
            minute.started, minute.count = now, 0  # `suppressed` stays: the next report has it
        return minute
