"""The client: the front door of the SDK."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Literal, Self, overload

import httpx2

from outrider.contract.account import Account
from outrider.contract.event_stream import StreamHeartbeat, StreamReady
from outrider.sdk import operations
from outrider.sdk.asynchronous.agent import AsyncAgent
from outrider.sdk.asynchronous.event_stream import frames, joined
from outrider.sdk.asynchronous.resources import (
    AsyncApprovals,
    AsyncMachines,
    AsyncSessions,
    AsyncWebhooks,
)
from outrider.sdk.asynchronous.transport import AsyncTransport
from outrider.sdk.configuration import Login, configuration
from outrider.sdk.results import Delta, Event
from outrider.sdk.retry_policy import RetryPolicy


class AsyncOutrider:
    """A client of the API of one account.

    Args:
        base_url: the address of the service; by default `OUTRIDER_URL`, then the one that
            `outrider up` listens on.
        api_key: by default `OUTRIDER_API_KEY`.
        login: email and password of a user, in place of a key, for what the API wants a dashboard
            session for: changes of webhooks, `disconnect` and `revoke` of machines. The first
            request logs in, `close` logs out.
        timeout: seconds that a request may take.
        max_retries: how often a request is sent again, when the connection failed or after a 429 or
            503. A POST has an `Idempotency-Key`, so that it is carried out once.
        retry_delay: seconds before the first retry, if the service does not say; doubled for each
            further one.
        http_client: sends the requests, for proxies or certificates; it stays yours to close.

    Attributes:
        machines: the machines of the account.
        sessions: the sessions of all machines, running and ended.
        approvals: what agents ask.
        webhooks: the webhooks.

    Raises:
        MissingApiKey: there is neither an API key nor a login.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        login: tuple[str, str] | None = None,
        timeout: float = 75.0,
        max_retries: int = 2,
        retry_delay: float = 0.5,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self._transport = AsyncTransport(
            configuration(base_url, api_key, None if login is None else Login(*login)),
            RetryPolicy(max_retries, retry_delay),
            timeout,
            http_client,
        )
        self.machines = AsyncMachines(self._transport)
        self.sessions = AsyncSessions(self._transport)
        self.approvals = AsyncApprovals(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Log out, if there was a login, and close the connections."""
        await self._transport.aclose()

    def agent(self, target_id: str, *, agent_type: str | None = None) -> AsyncAgent:
        """Return an agent by its target id, without a request.

        Args:
            target_id: such as the `target_id` of an event, an approval or a session.
            agent_type: which agent of an IDE with several.
        """
        return AsyncAgent(self._transport, target_id, agent_type=agent_type)

    async def account(self) -> Account:
        """Return the account's plan, usage and limits, and the key of this client."""
        return await self._transport.send(operations.ACCOUNT)

    @overload
    def events(
        self,
        events: str | Iterable[str] | None = ...,
        *,
        machine_id: str | None = ...,
        target: str | None = ...,
        deltas: Literal[False] = ...,
        after: str | None = ...,
        on_open: Callable[[], None] | None = ...,
        on_gap: Callable[[], None] | None = ...,
    ) -> AsyncGenerator[Event, None]: ...

    @overload
    def events(
        self,
        events: str | Iterable[str] | None = ...,
        *,
        machine_id: str | None = ...,
        target: str | None = ...,
        deltas: bool,
        after: str | None = ...,
        on_open: Callable[[], None] | None = ...,
        on_gap: Callable[[], None] | None = ...,
    ) -> AsyncGenerator[Event | Delta, None]: ...

    async def events(
        self,
        events: str | Iterable[str] | None = None,
        *,
        machine_id: str | None = None,
        target: str | None = None,
        deltas: bool = False,
        after: str | None = None,
        on_open: Callable[[], None] | None = None,
        on_gap: Callable[[], None] | None = None,
    ) -> AsyncGenerator[Event | Delta, None]:
        """Yield events as they happen, without end.

        It connects again by itself and resumes where it was, so that nothing is missed.

        Args:
            events: names, or patterns such as `agent:*`; all by default.
            machine_id: only those of this machine.
            target: only those of this session, by its target id.
            deltas: also yield a `Delta` for each part of a message that an agent writes.
            after: the `cursor` of an event, to begin after it; by default with what happens now.
            on_open: called when it has connected, also again: a state that is read then misses no
                event.
            on_gap: called if events may have been missed, because they are older than the service
                keeps.

        Raises:
            OutriderError: the first connection failed, the key is no longer valid, or the service
                was unavailable for 5 minutes.
        """
        query = {
            "events": joined(events),
            "daemonId": machine_id,
            "target": target,
            "deltas": "true" if deltas else None,
        }
        received = frames(self._transport, query, after=after, on_gap=on_gap)
        # A consumer may stop in the middle: the connection is closed then, not at some later time.
        async with aclosing(received):
            async for frame in received:
                if not isinstance(frame, StreamReady | StreamHeartbeat):
                    yield frame
                elif isinstance(frame, StreamReady) and on_open is not None:
                    on_open()
