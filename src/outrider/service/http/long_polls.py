"""Requests that wait for something to happen, and what ends their wait early."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from outrider.contract.errors import ApiError, ErrorCode
from outrider.service.accounts.principal import Principal
from outrider.service.accounts.revocation import Credential, RevocationWatch
from outrider.service.http.endpoint import Call
from outrider.service.http.streaming import first_to_end
from outrider.service.machines.dispatch import ClientGone

T = TypeVar("T")


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
        self._revocations.add(poll)
        try:
            leaving = asyncio.ensure_future(call.client_gone())
            first = await first_to_end(working, poll.ended, leaving)
        finally:
            self._revocations.remove(poll)
        if first is working:
            return working.result()
        if first is poll.ended:
            text = "This credential is no longer valid: it was revoked, ended or has expired"
            raise ApiError(401, text, code=ErrorCode.AUTH_INVALID)
        raise ClientGone("The client has disconnected")
