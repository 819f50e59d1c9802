"""What an agent asks its user: one question at a time, in the order in which they came."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
)

from outrider.contract.ids import new_id
from outrider.contract.resources import ActionOption, PendingAction

MAX_QUESTIONS: Final = 32
"""Questions that may wait; a further one is answered as cancelled."""

CANCEL: Final = "outrider:cancel"
"""The option that is added where an agent offers no way to reject."""

_CANCELLED: Final = RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


@dataclass
class _Question:
    action: PendingAction
    answer: asyncio.Future[RequestPermissionResponse]


class Questions:
    """Permission requests that wait. `changed` is called when another one comes first."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._waiting: OrderedDict[str, _Question] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> PendingAction | None:
        """The question that is to be answered now."""
        question = next(iter(self._waiting.values()), None)
        return None if question is None else question.action

    async def ask(
        self, message: str, options: Sequence[PermissionOption]
    ) -> RequestPermissionResponse:
        """Return the answer to a question, once it has been given."""
        if len(self._waiting) >= MAX_QUESTIONS:
            return _CANCELLED
        offers = [
            ActionOption(id=option.option_id, label=option.name, kind=option.kind)
            for option in options
        ]
        if not any(offer.kind.startswith("reject") for offer in offers):
            offers.append(ActionOption(id=CANCEL, label="Cancel", kind="reject_once"))
        action = PendingAction(id=new_id("act"), message=message, options=offers)
        question = _Question(action, asyncio.get_running_loop().create_future())
        self._waiting[action.id] = question
        if len(self._waiting) == 1:
            self._changed()
        try:
            return await question.answer
        finally:
            self._waiting.pop(action.id, None)

    def answer(self, action_id: str, option_id: str) -> bool:
        """Answer the first question; the next one comes first then.

        Return whether it was asked still: another one (or none) may come first by now.
        """
        first = self.first
        if first is None or first.id != action_id:
            return False
        question = self._waiting.pop(action_id)
        if question.answer.done():
            return False
        question.answer.set_result(
            _CANCELLED
            if option_id == CANCEL
            else RequestPermissionResponse(
                outcome=AllowedOutcome(outcome="selected", option_id=option_id)
            )
        )
        return True

    def cancel_all(self) -> None:
        """Answer every question as cancelled: nobody will."""
        waiting, self._waiting = self._waiting, OrderedDict()
        for question in waiting.values():
            if not question.answer.done():
                question.answer.set_result(_CANCELLED)
