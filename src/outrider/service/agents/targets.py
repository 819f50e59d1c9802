"""Resolves the target of a request: its path names one, and its body may name one too.

A body that contradicts the path is refused. Otherwise one of the two would be ignored, and a
message could reach a session that the client did not mean. Only the machine knows which sessions
are running: it gets a target id and a session id, and refuses them unless both name one session.
"""

from collections.abc import Mapping
from typing import Final

from outrider.contract.commands import NamesSession
from outrider.contract.errors import ApiError, bad_request, not_found
from outrider.contract.targets import Target, parse_target
from outrider.contract.text import MAX_NAME, is_printable
from outrider.service.machines.dispatch import Dispatcher

_FORMS: Final = (
    "it has the form <daemonId>:cli:<type>, :acp:<type>, :ide:<name> or :session:<sessionId>"
)


def target_of(text: str) -> Target:
    """Parse a target id.

    Raises:
        ApiError: 404, `text` is not a target id, or longer than any or not printable: a machine
            would refuse such a one as a bad value of a field (400).
    """
    target = parse_target(text) if len(text) <= MAX_NAME and is_printable(text) else None
    if target is None:
        raise not_found(f"No target {text!r}: {_FORMS}")
    return target


async def check_machine(
    dispatcher: Dispatcher, account_id: str, machine_id: str, request: NamesSession
) -> None:
    """Check that the target in a body, if any, belongs to the machine in the path.

    Raises:
        ApiError: 404, it is not a target, or the account does not own its machine; 400, it
            belongs to another machine of the account.
    """
    if request.target is None:
        return
    named = target_of(request.target)
    if named.daemon_id != machine_id:
        await dispatcher.owned(account_id, named.daemon_id)
        raise _contradiction(request.target, f"the machine {machine_id!r}")


async def aim(dispatcher: Dispatcher, account_id: str, path: str, request: NamesSession) -> Target:
    """Merge the target of the path with those in the body into `request`.

    Returns:
        The target of the path.

    Raises:
        ApiError: 404 or 400, as for `check_machine`; 400, the body contradicts the path.
    """
    target, other = target_of(path), request.target
    if other not in {None, path}:
        await check_machine(dispatcher, account_id, target.daemon_id, request)
    request.target = path
    if other is None or other == path:
        return target
    # Either way the machine gets both, and compares them: only it knows what runs now.
    named = target_of(other)
    if named.kind == "session" and request.session_id in {None, named.name}:
        request.session_id = named.name
    elif target.kind == "session" and request.session_id in {None, target.name}:
        request.target, request.session_id = other, target.name
    else:
        raise _contradiction(other, repr(path))
    return target


def names_as_sent(request: NamesSession) -> Mapping[str, str]:
    """Return the client's name for `sessionId`, for `fields_as_sent`."""
    return {} if request.target_session_id is None else {"sessionId": "targetSessionId"}


def _contradiction(named: str, path: str) -> ApiError:
    return bad_request(
        f"The body names {named!r}, but the path {path}: name one of them. Nothing was done",
        "target",
    )
