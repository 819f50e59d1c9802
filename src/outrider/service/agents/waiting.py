"""Waiting for an agent: a long poll that ends with a turn.

    client ── GET …/wait ──▶ wait ── read_turn (a command that never blocks) ──▶ machine
                              ▲ │
    events of the account ────┘ └── again after each wake-up, until a status of `until` is reached

The machine decides whether a turn is over; the service only knows when to ask again: after an event
of the account, and every few seconds, because a wake-up may be lost. So any node can serve a wait,
wherever the machine is connected.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from outrider.contract.commands import (
    TURN_ENDS,
    CommandType,
    GivenName,
    ReadTurn,
    TurnEnd,
    TurnState,
)
from outrider.contract.errors import ApiError, ErrorCode
from outrider.contract.resources import Session
from outrider.contract.structs import Wire
from outrider.contract.targets import Target
from outrider.contract.waiting import Waited
from outrider.service.accounts.principal import Scope
from outrider.service.agents.targets import target_of
from outrider.service.events.feed import LiveFeed, Subscription
from outrider.service.http.endpoint import Call, Endpoint, never
from outrider.service.http.long_polls import LongPolls
from outrider.service.machines.dispatch import Dispatcher
from outrider.service.machines.machine_state import MachineState

MAX_WAITS: Final = 100
"""Concurrent waits of one credential on a node."""

REREAD_SECONDS: Final = 5.0
"""Seconds after which a turn is read again without a wake-up."""

_SHORTEST_PAUSE: Final = 0.05
# Seconds between two reads. The pause grows with the reads that found nothing, because every event
# of the account wakes a wait, also those of other agents.
_LONGEST_PAUSE: Final = 0.5

# How long the only or the last read of a wait may take beyond its timeout.
_LAST_READ_SECONDS: Final = 2.0

_RETRY_SECONDS: Final = 1.0
_TRANSIENT: Final = frozenset({503, 504})

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(TurnState).decode


class WaitQuery(Wire, kw_only=True):
    """Which agent to wait for, until when, and for how long."""

    until: str = ",".join(TURN_ENDS)
    """The statuses that end the wait, separated by commas: `idle`, `waiting_approval`, `error`."""
    after: GivenName | None = None
    """The `cursor` of a message, to wait for the turn that it began, or of an earlier wait. Without
    it, the agent's present status counts.
    """
    timeout: Annotated[int, Meta(ge=0, le=60)] = 25
    """Seconds to wait at most."""
    agent_type: GivenName | None = None
    """Which agent of an IDE with several: its type or name. Without it, the one used last."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.until.split(",") if name not in TURN_ENDS]
        if unknown:
            raise ValueError(f"`until` has {unknown[0]!r}: give any of {', '.join(TURN_ENDS)}")

    @property
    def statuses(self) -> list[TurnEnd]:
        """The statuses that end the wait."""
        return [name for name in TURN_ENDS if name in self.until.split(",")]


class Waits:
    """Counts and limits the waits on this node."""

    def __init__(self) -> None:
        self._by_principal: Counter[str] = Counter()

    def count(self) -> int:
        """Return the number of waits."""
        return self._by_principal.total()

    @contextmanager
    def add(self, principal: str) -> Iterator[None]:
        """Count a wait while the context lasts.

        Raises:
            ApiError: 429, the credential has `MAX_WAITS` already.
        """
        if self._by_principal[principal] >= MAX_WAITS:
            raise ApiError(
                429,
                f"{MAX_WAITS} requests wait with this credential already: "
                "wait for fewer agents at a time, or use the events",
                code=ErrorCode.RATE_LIMITED,
                retry_after=_RETRY_SECONDS,
            )
        self._by_principal[principal] += 1
        try:
            yield
        finally:
            self._by_principal[principal] -= 1
            if not self._by_principal[principal]:
                del self._by_principal[principal]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitServices:
    """What waiting uses."""

    dispatcher: Dispatcher
    feed: LiveFeed
    waits: Waits
    polls: LongPolls


async def wait(services: WaitServices, call: Call) -> Waited:
    """Wait until an agent is idle, asks for approval, or fails.

    With `after`, the `cursor` of a message that was sent, for the end of the turn that this message
    began: neither the idle before it nor the end of another turn counts. The response comes as
    soon as one of `until` is reached, and at once if it is reached already.
    """
    target = target_of(call.path("ideId"))
    await services.dispatcher.owned(call.account_id, target.daemon_id)
    with (
        services.feed.subscribe(call.account_id) as subscription,
        services.waits.add(call.principal.id),
    ):
        work = _Wait(services, call.account_id, target, call.query, subscription).run()
        return await services.polls.run(call, work)


class _Wait:
    """One wait."""

    def __init__(
        self,
        services: WaitServices,
        account_id: str,
        target: Target,
        query: WaitQuery,
        subscription: Subscription,
    ) -> None:
        self._services = services
        self._account_id = account_id
        self._target = target
        self._query = query
        self._subscription = subscription
        self._turn: TurnState | None = None
        self._has_failed = False  # the last read has; the machine is expected back

    async def run(self) -> Waited:
        """Return once the wait is over.

        Raises:
            ApiError: what the machine has answered, except that it is offline; 404, there is no
                such session.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._query.timeout
        seconds = max(_LAST_READ_SECONDS, float(self._query.timeout))
        ended = await self._read_within(seconds, unfinished=False)
        reads = 1
        while ended is None and not self._is_draining() and (left := deadline - loop.time()) > 0:
            seconds = _RETRY_SECONDS if self._has_failed else REREAD_SECONDS
            pause = min(_LONGEST_PAUSE, _SHORTEST_PAUSE * reads, left)
            read_at = loop.time()
            await self._subscription.changed(min(left, seconds))
            if self._is_draining():
                break
            await asyncio.sleep(max(0.0, read_at + pause - loop.time()))
            left = deadline - loop.time()
            ended = await self._read_within(max(_LAST_READ_SECONDS, left), unfinished=left <= 0)
            reads += 1
        return ended or await self._timed_out()

    def _is_draining(self) -> bool:
        return self._services.feed.is_draining

    async def _read_within(self, seconds: float, *, unfinished: bool) -> Waited | None:
        try:
            async with asyncio.timeout(seconds):
                return await self._read(unfinished=unfinished)
        except TimeoutError:
            return None  # the machine hangs

    async def _read(self, *, unfinished: bool) -> Waited | None:
        """Return the response if the wait is over."""
        turn, query = self._turn, self._query
        request = ReadTurn(
            # By its id once it is known: another session of the type may be the latest by then.
            target=str(self._target) if turn is None else None,
            session_id=None if turn is None else turn.session_id,
            agent_type=query.agent_type,
            after=query.after,
            until=query.statuses,
            unfinished=unfinished or turn is None,
        )
        machine_id = self._target.daemon_id
        try:
            data = await self._services.dispatcher.call(
                self._account_id, machine_id, CommandType.READ_TURN, _encode(request), never
            )
        except ApiError as error:
            if error.status == 404 and turn is not None:
                return Waited(
                    reason="ended",
                    cursor=turn.cursor,
                    status=turn.status,
                    messages=[],
                    pending_action=None,
                )
            machine = await self._services.dispatcher.owned(self._account_id, machine_id)
            if not machine.connected:
                return self._without_machine("offline", machine)
            if error.status in _TRANSIENT:
                self._has_failed = True
                return None
            raise
        self._has_failed = False
        state = _decode(data)
        if state.reason is None and not unfinished and turn is not None:
            state.messages, state.cursor = turn.messages, turn.cursor
        self._turn = state
        return None if state.reason is None else _waited(state.reason, state)

    async def _timed_out(self) -> Waited:
        if self._turn is not None:
            return _waited("timeout", self._turn)
        machine_id = self._target.daemon_id
        machine = await self._services.dispatcher.owned(self._account_id, machine_id)
        return self._without_machine("timeout", machine)

    def _without_machine(
        self, reason: Literal["offline", "timeout"], machine: MachineState
    ) -> Waited:
        """Return what was last known of a session whose machine does not answer."""
        turn = self._turn
        session = _last_known(machine, self._target if turn is None else turn.session_id)
        return Waited(
            reason=reason,
            cursor=self._query.after if turn is None else turn.cursor,
            status=None if session is None else session.status,
            messages=[],
            pending_action=None if session is None else session.pending_action,
        )


def _waited(reason: TurnEnd | Literal["timeout"], state: TurnState) -> Waited:
    return Waited(
        reason=reason,
        cursor=state.cursor,
        status=state.status,
        messages=state.messages,
        pending_action=state.pending_action,
    )


def _last_known(machine: MachineState, wanted: Target | str) -> Session | None:
    """Return a session as its machine last reported it."""
    if isinstance(wanted, str):
        return machine.sessions.get(wanted)
    if wanted.kind == "session":
        return machine.sessions.get(wanted.name)
    sessions = [
        session
        for session in machine.sessions.values()
        if session.kind == wanted.kind and wanted.name in (session.type, session.name)
    ]
    return max(sessions, key=lambda session: session.last_activity_at, default=None)


ENDPOINTS: list[Endpoint[WaitServices]] = [
    Endpoint(
        method="GET",
        path="/api/v1/shortcuts/{ideId}/wait",
        scope=Scope.AGENT_READ,
        summary="Wait for an agent",
        handler=wait,
        response=Waited,
        query=WaitQuery,
        tag="Shortcuts",
    ),
]
