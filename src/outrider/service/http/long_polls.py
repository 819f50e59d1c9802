"""Requests that wait for something to happen, and what ends their wait early."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.accounts.principal import Principal
from outrider.service.accounts.revocation import Credential, RevocationWatch
from outrider.service.http.endpoint import Call
from outrider.service.http.streaming import wait_for
from outrider.service.machines.dispatch import ClientGone

T = TypeVar("T")

_END_SECONDS: Final = 1.0


class _LongPoll:
    """A request that waits. `ended` is done when its credential is no longer valid."""

    def __init__(self, principal: Principal) -> None:
        self.credential = Credential(principal)
        self.ended = asyncio.get_running_loop().create_future()

    def revoked(self) -> None:
        """End the wait."""
        if not self.ended.done():
            self.ended.set_result(None)


class LongPolls:
    """Runs the requests of this node that wait."""

    def __init__(self, revocations: RevocationWatch) -> None:
        self._revocations = revocations

    async def run(self, call: Call, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`; cancel it once nobody may or can read it.

        Raises:
            ApiError: 401, the credential was revoked, or its session has ended.
            ClientGone: the client has disconnected.
            Exception: `work` has failed.
        """
        poll = _LongPoll(call.principal)
        working = asyncio.create_task(work, name="wait for a client")
        leaving = asyncio.create_task(
            wait_for(call.client_gone), name="wait for a client to disconnect"
        )
        self._revocations.add(poll)
        try:
            await asyncio.wait({working, leaving, poll.ended}, return_when=asyncio.FIRST_COMPLETED)
            is_complete = working.done()
        finally:
            self._revocations.remove(poll)
            working.cancel()
            leaving.cancel()
            await asyncio.wait({working, leaving}, timeout=_END_SECONDS)
        if is_complete:
            return working.result()
        if poll.ended.done():
            text = "This credential is no longer valid: it was revoked, ended or has expired"
            raise ApiError(401, text, code=ErrorCode.AUTH_INVALID)
        raise ClientGone("The client has disconnected")
