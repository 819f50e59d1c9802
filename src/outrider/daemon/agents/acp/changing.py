"""How a control is changed: checked first, then by the agent, which has the last word."""

from collections.abc import Callable, Mapping

from acp import RequestError

from outrider.contract.errors import ApiError, bad_request
from outrider.daemon.agents.acp.content import error_text
from outrider.daemon.agents.acp.controls import Controls, Value
from outrider.daemon.agents.acp.peer import Peer


async def change(
    controls: Controls,
    values: Mapping[str, Value],
    peer: Peer,
    session: str,
    changed: Callable[[], None],
) -> None:
    """Change controls, one after the other; `changed` is called after each.

    Raises:
        ApiError: 400, there is no such control or value, or the agent refuses it;
            500, the agent did not answer.
    """
    for setting, value in controls.check(values):
        name = setting.control.label
        try:
            answer = await peer.change(session, setting, value)
        except RequestError as error:
            raise bad_request(
                f"The agent did not change {name} to {value!r}: {error_text(error)}",
                f"controls.{setting.control.id}",
            ) from error
        except (ConnectionError, TimeoutError) as error:
            raise ApiError(500, f"The agent did not answer the change of {name}") from error
        controls.changed(setting, value)
        controls.take_options(answer)
        changed()
