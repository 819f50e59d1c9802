"""Which question of an agent a request answers, and how."""

from collections.abc import Collection

from outrider.contract.commands import ResolveAction
from outrider.contract.errors import ErrorCode, bad_request, conflict
from outrider.contract.resources import ActionOption, PendingAction


def to_answer(
    request: ResolveAction, pending: PendingAction | None, answered: Collection[str]
) -> tuple[PendingAction, ActionOption]:
    """Return the question that is to be answered, and the option that is chosen.

    `pending` is the one that the agent asks, `answered` has the ids of those that have been
    answered.

    Raises:
        ApiError: 409, nothing is pending (`NO_PENDING_ACTION`), or another question is, or the
            action has been answered; 400, the action has no such option.
    """
    if request.action_id is not None and request.action_id in answered:
        raise conflict(f"The action {request.action_id} has been answered already")
    if pending is None:
        raise conflict(
            "The agent does not wait for an approval: nothing to approve or reject",
            ErrorCode.NO_PENDING_ACTION,
        )
    if request.action_id is not None and request.action_id != pending.id:
        raise conflict(
            f"The action {request.action_id} is not pending any more; "
            f"the agent now asks {pending.id}"
        )
    return pending, _choose(pending, request)


def _choose(pending: PendingAction, request: ResolveAction) -> ActionOption:
    wanted = "allow" if request.action == "approve" else "reject"
    if request.option_id is not None:
        for option in pending.options:
            if option.id == request.option_id:
                if not option.kind.startswith(wanted):
                    raise bad_request(
                        f"The option {option.id!r} ({option.label}) does not {request.action}",
                        "optionId",
                    )
                return option
        ids = ", ".join(repr(option.id) for option in pending.options)
        raise bad_request(f"The action has no option {request.option_id!r}, only {ids}", "optionId")
    for kind in (f"{wanted}_once", f"{wanted}_always"):
        for option in pending.options:
            if option.kind == kind:
                return option
    raise bad_request(f"The agent offers no way to {request.action} this", "action")
