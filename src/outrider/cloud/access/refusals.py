"""What machines kept their agents from, on its way into the audit.

A machine's word is bounded here too: it may be a machine that has turned bad.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import structlog

from outrider.cloud.access.audit import KEPT_SECONDS, Audit
from outrider.cloud.access.windows import WindowStorage
from outrider.contract.events import Refused
from outrider.contract.text import printable

A_MINUTE: Final = 120
"""Refusals of one machine in a minute that get into the audit."""

_MACHINES: Final = 10_000
_SHOWN_OF_TARGET: Final = 200

_log = structlog.get_logger(__name__)


class Refusals:
    """Notes the refusals of machines.

    Args:
        clock: seconds since the epoch.
    """

    def __init__(self, audit: Audit, clock: Callable[[], float] = time.time) -> None:
        self._audit = audit
        self._clock = clock
        self._lately = WindowStorage(_MACHINES, clock)

    def note(self, account_id: str, machine_id: str, refused: Refused) -> None:
        """Note a refusal, as of the machine itself; one too many is dropped."""
        if not self._lately.take(machine_id, A_MINUTE, 60, 1)[0]:
            _log.info("refusal not noted: too many of one machine", machine=machine_id)
            return
        what = f"{refused.session_id} {refused.target[:_SHOWN_OF_TARGET]}"
        more = f" (and {refused.untold} before it)" if refused.untold else ""
        now = self._clock()
        self._audit.note(
            principal=machine_id,
            account_id=account_id,
            action=printable(refused.action),
            target=printable(what + more),
            outcome=HTTPStatus.FORBIDDEN,
            address="",
            request_id="",
            at=min(max(refused.timestamp / 1000, now - KEPT_SECONDS), now),
        )
