"""Spans that a test looks at: recorded in memory, or as a collector gets them over OTLP."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from outrider.tracing import Attributes, Kind, Span, Tracing
from tests.rig.patience import eventually

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"


class RecordedSpan(Span):
    """A span that keeps what is said of it."""

    __slots__ = ("_is_ended", "attributes", "failure", "name", "parent", "traceparent")

    def __init__(self, name: str, parent: str | None, number: int, attributes: Attributes) -> None:
        self.name = name
        self.parent = parent
        self.attributes = dict(attributes)
        self.failure: str | None = None
        self._is_ended = False
        self.traceparent = f"00-{TRACE_ID}-{number:016x}-01"

    def set(self, name: str, value: str | int) -> None:
        self.attributes[name] = value

    def rename(self, name: str) -> None:
        self.name = name

    def fail(self, kind: str) -> None:
        self.failure = kind

    def end(self) -> None:
        self._is_ended = True

    def has_ended(self) -> bool:
        """Return whether it has."""
        return self._is_ended

    def __exit__(self, *_: object) -> None:
        self.end()


class RecordedTracing(Tracing):
    """Keeps the spans that were begun, in order."""

    is_on = True

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []

    def start(
        self, name: str, kind: Kind, traceparent: str | None, attributes: Attributes
    ) -> RecordedSpan:
        span = RecordedSpan(name, traceparent, len(self.spans) + 1, attributes)
        self.spans.append(span)
        return span


class ExportedSpan(NamedTuple):
    """A span as a collector gets it; ids are hexadecimal, `parent` is empty for a root."""

    service: str
    name: str
    kind: str
    trace_id: str
    id: str
    parent: str
    attributes: dict[str, str | int]
    is_failed: bool


class Collector:
    """Takes traces over OTLP/HTTP.

    Attributes:
        bodies: every request as it came.
    """

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self._answer: Callable[[], Awaitable[int]] = _accept

    def answers(self, answer: Callable[[], Awaitable[int]]) -> None:
        """Answer with this status from now on."""
        self._answer = answer

    @property
    def spans(self) -> list[ExportedSpan]:
        """The spans that have come."""
        return [span for body in self.bodies for span in _decoded(body)]

    async def trace(self, trace_id: str, *names: str) -> dict[str, ExportedSpan]:
        """Wait until a trace has spans of these names; return its spans by name."""
        found: dict[str, ExportedSpan] = {}

        def has_all() -> bool:
            found.update({one.name: one for one in self.spans if one.trace_id == trace_id})
            return found.keys() >= set(names)

        await eventually(has_all)
        return found

    async def request(self, request_id: str) -> ExportedSpan:
        """Wait for the span of a request, by its `X-Request-Id`; return it."""
        found: list[ExportedSpan] = []

        def has_come() -> bool:
            found[:] = [
                one for one in self.spans if one.attributes.get("outrider.request.id") == request_id
            ]
            return bool(found)

        await eventually(has_come)
        (span,) = found
        return span

    async def handle(self, request: web.Request) -> web.Response:
        """Take an export."""
        assert request.path == "/v1/traces"
        self.bodies.append(await request.read())
        self.headers.append(dict(request.headers))
        return web.Response(status=await self._answer(), content_type="application/x-protobuf")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Run a collector for a block."""
    collector = Collector()
    app = web.Application()
    app.router.add_post("/{path:.*}", collector.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()


def export_to(url: str, patch: pytest.MonkeyPatch) -> None:
    """Set what a user sets, and have spans exported at once."""
    patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


async def _accept() -> int:
    return 200


def _decoded(body: bytes) -> list[ExportedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    found = []
    for resource in request.resource_spans:
        service = next(
            one.value.string_value
            for one in resource.resource.attributes
            if one.key == "service.name"
        )
        for scope in resource.scope_spans:
            found += [_span(service, span) for span in scope.spans]
    return found


def _span(service: str, span: WireSpan) -> ExportedSpan:
    return ExportedSpan(
        service=service,
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes={
            one.key: one.value.string_value or one.value.int_value for one in span.attributes
        },
        is_failed=span.status.code == span.status.STATUS_CODE_ERROR,
    )
