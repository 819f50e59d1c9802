"""Accepts events: each is stored with its deliveries in one transaction, then acknowledged.

    machine ─▶ gateway ─▶ agent_event ─▶ queue ─▶ run: one transaction for a batch
                                                   │ events, deliveries, event_seq of the machine
                                                   ├─▶ acknowledge to the machine
                                                   └─▶ DeliveryQueue claims from the table

Invariant: an event is acknowledged only after the transaction that stores it and its deliveries is
committed, and a machine repeats what is not acknowledged. So no event is lost if the process is
killed at any moment. Events have ids of their machine's making; a repeated one is not stored twice.
The number of a machine's newest event only advances by events of its newest connection.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from outrider.contract.events import REPORTED_EVENTS, AgentEvent, EventName
from outrider.contract.ids import is_id, new_id
from outrider.contract.sizes import MAX_EVENT_BYTES, cut_event
from outrider.contract.targets import parse_target
from outrider.service.database.engine import DATABASE_ERRORS, Database, is_refused
from outrider.service.events.log import Event
from outrider.service.machines.store.session_history import OwnedSession
from outrider.service.webhooks import retry_policy
from outrider.service.webhooks.delivery_queue import CLAIM_SECONDS, DeliveryQueue
from outrider.service.webhooks.store import deliveries
from outrider.service.webhooks.store.deliveries import Delivery
from outrider.service.webhooks.subscriptions import Subscriptions

MAX_WAITING: Final = 1000
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
"""Events, and bytes of them, that may wait to be stored; beyond it, machines that send events wait.
"""

_BATCH: Final = 500
_BATCH_INTERVAL: Final = 0.01
"""Pause after a batch of several events, so that the next one is larger; one event never waits."""

_log = structlog.get_logger(__name__)


class _Pending(NamedTuple):
    """An event that waits to be stored, number `seq` of `machine`, from its `connection`.

    `event` is None for one that is not stored. It keeps its place in the queue, because
    acknowledging it acknowledges all events before it too.
    """

    event: Event | None
    machine: str
    connection: int
    seq: int
    stored: Callable[[], None]
    ended: OwnedSession | None = None


class EventIntake:
    """Stores events with their deliveries.

    Args:
        on_stored: called with an account's id when events of it have been committed.
        clock: seconds since the epoch.
        retry_interval: seconds between tries while the database is unavailable.
    """

    def __init__(
        self,
        *,
        database: Database,
        subscriptions: Subscriptions,
        queue: DeliveryQueue,
        on_stored: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        retry_interval: float = 1.0,
    ) -> None:
        self._database = database
        self._subscriptions = subscriptions
        self._queue = queue
        self._on_stored = on_stored
        self._clock = clock
        self._retry_interval = retry_interval
        self._waiting: asyncio.Queue[_Pending] = asyncio.Queue(MAX_WAITING)
        self._bytes = 0
        """The bytes of the events that are accepted and not stored yet."""
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def agent_event(
        self,
        account_id: str,
        daemon_id: str,
        connection: int,
        seq: int,
        event: AgentEvent,
        *,
        stored: Callable[[], None],
    ) -> None:
        """Accept a machine's event; `stored` is called once it is committed.

        Waits while `MAX_WAITING` events or `MAX_WAITING_BYTES` wait. An event that machines may not
        send is dropped, one that is too long is cut.

        Args:
            connection: the number of the connection on which it arrived.
        """
        row: Event | None = None
        if event.event in REPORTED_EVENTS and is_id("evt", event.id) and has_content(event):
            body = agent_body(daemon_id, event)
            if len(body) > MAX_EVENT_BYTES:
                event = cut_event(event)
                body = agent_body(daemon_id, event)
            row = Event(event.id, account_id, event.event, body, self._now())
        else:
            _log.warning(
                "event dropped",
                machine=daemon_id,
                name=event.event,
                id=event.id,
            )
        ended = None if row is None else _ended_session(account_id, daemon_id, event)
        while self._bytes > MAX_WAITING_BYTES:
            await self._has_room.wait()
        await self._waiting.put(_Pending(row, daemon_id, connection, seq, stored, ended))
        self._count(0 if row is None else len(row.body))

    async def machine_event(
        self,
        name: EventName,
        *,
        account_id: str,
        daemon_id: str,
        hostname: str,
        nickname: str,
        platform: str,
    ) -> "MachineEvent":
        """Return the event of a presence change, to be stored in the transaction of the change."""
        event_id, now = new_id("evt"), self._now()
        body = machine_body(
            event_id=event_id,
            event=name,
            daemon_id=daemon_id,
            hostname=hostname,
            nickname=nickname,
            platform=platform,
            now=now,
        )
        event = Event(event_id, account_id, name, body, now)
        rows = await self._new_deliveries(event, now)

        def stored() -> None:
            self._queue.wake({row.webhook_id for row in rows})
            self._on_stored(account_id)

        return MachineEvent(event, rows, stored)

    async def test(self, account_id: str, webhook_id: str) -> Delivery:
        """Deliver `webhook:test` to one webhook; return the delivery after its first attempt."""
        event_id, now = new_id("evt"), self._now()
        body = test_body(event_id=event_id, webhook_id=webhook_id, now=now)
        event = Event(event_id, account_id, EventName.WEBHOOK_TEST, body, now)
        delivery = retry_policy.new_delivery(webhook_id, event_id, event.name, now)
        claimed_until = int((self._clock() + CLAIM_SECONDS) * 1000)
        await deliveries.add_test(self._database, event, delivery, claimed_until)
        return await self._queue.deliver(delivery, body, claimed_until)

    async def run(self) -> None:
        """Store accepted events until cancelled; then try once more, up to `MAX_WAITING` of them.

        The rest is not acknowledged, so machines repeat it.
        """
        batch: list[_Pending] = []
        try:
            while True:
                batch.append(await self._waiting.get())
                self._fill(batch)
                await self._store_with_retry(batch)
                self._count(-sum(len(entry.event.body) for entry in batch if entry.event))
                several = len(batch) > 1
                batch.clear()
                if several:
                    await asyncio.sleep(_BATCH_INTERVAL)
        finally:
            self._fill(batch, limit=MAX_WAITING)
            if batch:
                await self._store(batch)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_WAITING_BYTES:
            self._has_room.clear()
        else:
            self._has_room.set()

    def _fill(self, batch: list[_Pending], limit: int = _BATCH) -> None:
        while len(batch) < limit and not self._waiting.empty():
            batch.append(self._waiting.get_nowait())

    async def _store_with_retry(self, batch: list[_Pending]) -> None:
        """Store a batch, retrying while the database is unavailable; machines wait meanwhile.

        A webhook or an account may have been deleted since it was looked up. One such event must
        not block those of all other machines: events of a batch that the database refuses are
        stored one by one, and one that it refuses twice is dropped.
        """
        was_refused = False
        while True:
            try:
                await self._store(batch)
            except DATABASE_ERRORS as error:
                cause = error
            else:
                return
            first = batch[0]
            if not is_refused(cause):
                _log.warning("storing events failed, retrying", count=len(batch), error=str(cause))
                await asyncio.sleep(self._retry_interval)
            elif len(batch) > 1:
                for pending in batch:
                    await self._store_with_retry([pending])
                return
            elif was_refused:
                _log.error("event cannot be stored", machine=first.machine, error=str(cause))
                first.stored()
                return
            else:
                was_refused = True
                if first.event is not None:
                    self._subscriptions.invalidate(first.event.account_id)

    async def _store(self, batch: list[_Pending]) -> None:
        now = self._now()
        events: dict[str, Event] = {}
        rows: list[Delivery] = []
        newest: dict[str, tuple[int, int]] = {}
        for pending in batch:
            latest = (pending.connection, pending.seq)
            newest[pending.machine] = max(latest, newest.get(pending.machine, latest))
            event = pending.event
            if event is not None and event.id not in events:
                events[event.id] = event
                rows += await self._new_deliveries(event, now)
        ended = [pending.ended for pending in batch if pending.ended is not None]
        await deliveries.store(self._database, list(events.values()), rows, newest, ended)
        self._queue.wake({row.webhook_id for row in rows})
        for account_id in {event.account_id for event in events.values()}:
            self._on_stored(account_id)
        for pending in batch:
            pending.stored()

    async def _new_deliveries(self, event: Event, now: int) -> list[Delivery]:
        """Return a delivery of an event for each webhook that is subscribed to it."""
        destinations = await self._subscriptions.destinations(event.account_id)
        return [
            retry_policy.new_delivery(destination.id, event.id, event.name, now)
            for destination in destinations.values()
            if destination.wants(event.name)
        ]

    def _now(self) -> int:
        return int(self._clock() * 1000)


@dataclass
class MachineEvent:
    """The event of a machine's change of presence and its deliveries, not stored yet.

    Attributes:
        stored: starts its deliveries; call it after the transaction is committed.
    """

    event: Event
    deliveries: Sequence[Delivery]
    stored: Callable[[], None]


# The bodies of deliveries: flat, and the same in an envelope (`payload`), in one object.


_CONTENT: Final = {
    EventName.SESSION_STARTED: "session",
    EventName.SESSION_ENDED: "session",
    EventName.SESSION_UPDATED: "session",
    EventName.CHAT_MESSAGE: "chat_message",
    EventName.APPROVAL_OPENED: "action",
    EventName.APPROVAL_RESOLVED: "action",
    EventName.QUEUE_CHANGED: "queue",
}
"""The field of an agent's event that its body is about; the other events have none."""


def has_content(event: AgentEvent) -> bool:
    """Return whether an agent's event has what its body is about, such as its message."""
    field = _CONTENT.get(event.event)
    return field is None or getattr(event, field) is not None


def _ended_session(account_id: str, daemon_id: str, event: AgentEvent) -> OwnedSession | None:
    """Return the session that an event says has ended.

    A machine agent of an older release does not say why; there, sessions ended only by the API.
    """
    if event.event != EventName.SESSION_ENDED or event.session is None:
        return None
    session = msgspec.structs.replace(
        event.session,
        id=event.session_id,
        target_id=f"{daemon_id}:session:{event.session_id}",
        pending_action=None,
        state="ended",
        ended_at=event.session.ended_at or event.timestamp,
        end_reason=event.session.end_reason or "stopped",
    )
    return OwnedSession(account_id, daemon_id, session)


def agent_body(daemon_id: str, event: AgentEvent) -> bytes:
    """Return the body of an agent's event; a target id of something else is replaced."""
    target_id = f"{daemon_id}:session:{event.session_id}"
    target = parse_target(event.ide_id)
    ide_id = event.ide_id
    if target is None or target.daemon_id != daemon_id or target.kind == "session":
        ide_id = target_id
    body: dict[str, Any] = {
        "id": event.id,
        "event": event.event,
        "timestamp": event.timestamp,
        "daemonId": daemon_id,
        "sessionId": event.session_id,
        "targetId": target_id,
        "ideId": ide_id,
        "ideType": event.ide_type,
    }
    payload: dict[str, Any] = {"chatTitle": event.chat_title, "ideType": event.ide_type}
    if event.event == EventName.GENERATING_COMPLETED:
        body["duration"] = payload["duration"] = event.duration
    payload["timestamp"] = event.timestamp
    payload["sessionId"] = event.session_id
    if event.message is not None:
        payload["message"] = event.message
    if event.event in _CONTENT:
        _add_content(payload, event, target_id)
    if event.truncated:
        payload["truncated"] = True
    body["payload"] = payload
    return msgspec.json.encode(body)


def _add_content(payload: dict[str, Any], event: AgentEvent, target_id: str) -> None:
    match event.event:
        case EventName.SESSION_STARTED | EventName.SESSION_ENDED | EventName.SESSION_UPDATED:
            session = event.session
            if session is not None:
                session = msgspec.structs.replace(session, id=event.session_id, target_id=target_id)
            payload["session"] = session
            if event.controls is not None:
                payload["controls"] = event.controls
        case EventName.CHAT_MESSAGE:
            payload["message"] = event.chat_message
        case EventName.APPROVAL_OPENED:
            payload["action"] = event.action
        case EventName.APPROVAL_RESOLVED:
            answer = event.answer
            payload["action"] = event.action
            payload["resolution"] = None if answer is None else answer.action
            payload["optionId"] = None if answer is None else answer.option_id
            payload["answeredBy"] = None if answer is None else answer.by
        case EventName.QUEUE_CHANGED:
            payload["messages"] = event.queue


def machine_body(
    *,
    event_id: str,
    event: EventName,
    daemon_id: str,
    hostname: str,
    nickname: str,
    platform: str,
    now: int,
) -> bytes:
    """Return the body of a machine's change of presence."""
    return msgspec.json.encode(
        {
            "id": event_id,
            "event": event,
            "timestamp": now,
            "daemonId": daemon_id,
            "payload": {
                "hostname": hostname,
                "nickname": nickname,
                "platform": platform,
                "timestamp": now,
            },
        }
    )


def test_body(*, event_id: str, webhook_id: str, now: int) -> bytes:
    """Return the body of a `webhook:test` event."""
    return msgspec.json.encode(
        {
            "id": event_id,
            "event": EventName.WEBHOOK_TEST,
            "timestamp": now,
            "payload": {"webhookId": webhook_id, "timestamp": now},
        }
    )
