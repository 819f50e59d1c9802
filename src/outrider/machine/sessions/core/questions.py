"""Who may answer an agent's question, once; free of I/O."""

from collections import deque
from typing import Final

from outrider.contract.commands import ResolveAction
from outrider.contract.errors import ApiError, ErrorCode, bad_request, conflict
from outrider.contract.resources import ActionOption, PendingAction
from outrider.machine.sessions.core.protocol import AnswerRequest, Choose

_MAX_ANSWERED: Final = 64
"""Ids of answered actions that are remembered, so that outdated observations are ignored."""


class Questions:
    """The questions of a session's agents that a client has answered."""

    def __init__(self) -> None:
        self._answered: deque[str] = deque(maxlen=_MAX_ANSWERED)

    def is_answered(self, action: PendingAction | None) -> bool:
        """Return whether this question has been answered.

        An observation of it was made before the answer took effect.
        """
        return action is not None and action.id in self._answered

    def answer(self, agent: str, pending: PendingAction | None, request: AnswerRequest) -> Choose:
        """Return the act of an answer; further answers of this question are refused from here on.

        Raises:
            ApiError: 409, nothing is pending, another question is, or it has been answered; 400,
                the question has no such option.
        """
        answer, wanted = request.answer, request.answer.action_id
        if wanted is not None and wanted in self._answered:
            raise conflict(f"The action {wanted} has been answered already")
        if pending is None:
            raise conflict(
                "The agent does not wait for an approval: nothing to approve or reject",
                ErrorCode.NO_PENDING_ACTION,
            )
        if wanted is not None and wanted != pending.id:
            raise conflict(
                f"The action {wanted} is not pending any more; the agent now asks {pending.id}"
            )
        choice = Choose(agent, pending, _choose_option(pending, answer), request.by)
        self._answered.append(pending.id)
        return choice

    def reopen(self, choice: Choose) -> None:
        """Undo `answer`, whose act has failed: the question can be answered again."""
        self._answered.remove(choice.action.id)


def question_changed() -> ApiError:
    """Return the error for an answer to a question that is no longer pending."""
    return conflict("The agent no longer asks this question")


def _choose_option(pending: PendingAction, answer: ResolveAction) -> ActionOption:
    """Return the option that an answer names; without one, `…_once` before `…_always`."""
    wanted = "allow" if answer.action == "approve" else "reject"
    if answer.option_id is not None:
        for option in pending.options:
            if option.id == answer.option_id:
                if not option.kind.startswith(wanted):
                    raise bad_request(
                        f"The option {option.id!r} ({option.label}) does not {answer.action}",
                        "optionId",
                    )
                return option
        ids = ", ".join(repr(option.id) for option in pending.options)
        raise bad_request(f"The action has no option {answer.option_id!r}, only {ids}", "optionId")
    for kind in (f"{wanted}_once", f"{wanted}_always"):
        for option in pending.options:
            if option.kind == kind:
                return option
    raise bad_request(f"The agent offers no way to {answer.action} this", "action")
