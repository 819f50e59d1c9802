"""Live events: as a stream (server-sent events), or page by page with a long poll."""

from dataclasses import dataclass
from typing import Final

import msgspec

from outrider.contract.errors import ApiError, ErrorCode, bad_request, not_found
from outrider.contract.event_stream import EventPage, EventQuery
from outrider.contract.targets import parse_target
from outrider.service.accounts.principal import Principal, Scope
from outrider.service.database.engine import Database
from outrider.service.events import frames
from outrider.service.events.pages import Page, Pages
from outrider.service.events.selection import (
    AGENT_KINDS,
    MACHINE_KINDS,
    Selection,
    UnknownPattern,
    select,
)
from outrider.service.events.streams import EventStreams, retry_after_ms
from outrider.service.http.endpoint import Call, Endpoint, StreamKind
from outrider.service.http.long_polls import LongPolls
from outrider.service.http.streaming import Stream
from outrider.service.machines.store import machines

_STREAM: Final = b"text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventServices:
    """What the handler of events uses."""

    database: Database
    streams: EventStreams
    pages: Pages
    polls: LongPolls


async def read_events(services: EventServices, call: Call) -> bytes | Stream:
    """The account's events, live and of at least the last 24 hours.

    With `Accept: text/event-stream` a stream of server-sent events, which resumes after
    `Last-Event-ID`; otherwise one page, which may `wait` for the first event.

    A credential with the scope `agent:read` gets `agent:*`, `chat:*`, `session:*`, `approval:*` and
    `queue:*`, one with `ide:read` gets `machine:*`.
    """
    query: EventQuery = call.query
    selection = await _selection(services.database, call.principal, query)
    headers = dict(call.asgi_scope["headers"])
    if _accepts_stream(headers.get(b"accept", b"")):
        last = headers.get(b"last-event-id", b"").decode("latin-1")
        after = last or query.after or None
        stream = await services.streams.open(call.principal, selection, after)
        last_on_drain = frames.end_frame("draining", retry_after_ms())
        return Stream(stream.chunks(), last_on_drain, stream.close)
    reading = services.pages.read(
        call.account_id,
        selection,
        after=query.after or None,
        limit=query.limit,
        wait=query.wait,
    )
    return _body(await (services.polls.run(call, reading) if query.wait else reading))


async def _selection(database: Database, principal: Principal, query: EventQuery) -> Selection:
    """Return what the principal wants and may read.

    Raises:
        ApiError: 403, the credential may read no events; 404, a filter names a machine that is not
            in the account; 400, a filter names an event that does not exist.
    """
    kinds: frozenset[str] = frozenset()
    if Scope.AGENT_READ in principal.scopes:
        kinds |= AGENT_KINDS
    if Scope.IDE_READ in principal.scopes:
        kinds |= MACHINE_KINDS
    if not kinds:
        raise ApiError(
            403,
            f"This credential lacks the scopes {Scope.AGENT_READ} and {Scope.IDE_READ}: "
            "events need one of them",
            code=ErrorCode.AUTH_FORBIDDEN,
        )
    try:
        selection = select(query, kinds)
    except UnknownPattern as error:
        text = f"No event is called {str(error)!r}: give names, or `agent:*` for all of a kind"
        raise bad_request(text, "events") from error
    wanted = [] if query.daemon_id is None else [query.daemon_id]
    if query.target is not None:
        target = parse_target(query.target)
        if target is None:
            text = "`target` is not a target id such as <daemonId>:session:<sessionId>"
            raise bad_request(text, "target")
        wanted.append(target.daemon_id)
    for daemon_id in wanted:
        machine = await machines.by_id(database, daemon_id)
        if machine is None or machine.account_id != principal.account_id:
            raise not_found(f"No machine {daemon_id!r} in this account")
    return selection


def _accepts_stream(accept: bytes) -> bool:
    """Return whether a client asks for a stream by name; `*/*` gets JSON."""
    return any(part.partition(b";")[0].strip().lower() == _STREAM for part in accept.split(b","))


def _body(page: Page) -> bytes:
    """Return the body of a page; the events' own bodies go into it as they are stored."""
    events = b",".join(
        b'{"cursor":"%b",%b' % (frames.cursor_text(event.cursor).encode(), event.body[1:])
        for event in page.events
    )
    rest = msgspec.json.encode({"cursor": frames.cursor_text(page.cursor), "resume": page.resume})
    return b'{"events":[%b],%b' % (events, rest[1:])


_EXAMPLE: Final = """\
event: stream:ready
data: {"resume":"fresh","cursor":"0000000000000041"}

id: 0000000000000042
event: machine:connected
data: {"id":"evt_01k","event":"machine:connected","timestamp":1750000000000,…}

event: stream:heartbeat
data: {"cursor":"0000000000000042"}

"""

ENDPOINTS: list[Endpoint[EventServices]] = [
    Endpoint(
        method="GET",
        path="/api/v1/events",
        who="principal",
        summary="Read events, live",
        handler=read_events,
        response=EventPage,
        stream=StreamKind(
            media_type=_STREAM.decode(),
            description="Server-sent events: `stream:ready` first; the events, with their cursors "
            "as `id`; `stream:heartbeat` every 10 seconds; `chat:delta` with `deltas=true`; and "
            "`stream:end` with the reason last.",
            example=_EXAMPLE,
        ),
        query=EventQuery,
        tag="Events",
    ),
]
