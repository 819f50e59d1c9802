"""Spans that a test looks at: recorded in memory, or as a collector gets them over OTLP."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import pytest
from aiohttp import web
from opentelemetry.context import Context
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import format_span_id

from outrider.trace_export import FLUSH_SECONDS, Export
from outrider.tracing import Span as OurSpan
from outrider.tracing import Tracing
from tests.rig.waiting import eventually

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"


class RecordedTracing(Tracing, SpanProcessor):
    """Keeps the spans that were begun, in order."""

    def __init__(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self)
        super().__init__(provider.get_tracer("tests"))
        self.spans: list[RecordedSpan] = []

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        self.spans.append(RecordedSpan(span))


class RecordedSpan:
    """What is known of a span; ids are hexadecimal, `parent` is empty for a root."""

    def __init__(self, span: SdkSpan) -> None:
        self._span = span
        self.name = span.name
        self.parent = "" if span.parent is None else format_span_id(span.parent.span_id)
        self.id = format_span_id(span.get_span_context().span_id)
        self.traceparent = OurSpan(span).traceparent

    @property
    def attributes(self) -> dict[str, object]:
        """Its attributes without the kind of its failure."""
        attributes = self._span.attributes or {}
        return {name: value for name, value in attributes.items() if name != "error.type"}

    @property
    def failure(self) -> object:
        """The kind of its failure; None without one."""
        return (self._span.attributes or {}).get("error.type")

    def has_ended(self) -> bool:
        """Return whether it has."""
        return self._span.end_time is not None


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
        spans: dict[str, ExportedSpan] = {}

        def has_all() -> bool:
            spans.update({span.name: span for span in self.spans if span.trace_id == trace_id})
            return spans.keys() >= set(names)

        await eventually(has_all)
        return spans

    async def request(self, request_id: str) -> ExportedSpan:
        """Wait for the span of a request, by its `X-Request-Id`; return it."""
        spans: list[ExportedSpan] = []

        def has_come() -> bool:
            key = "outrider.request.id"
            spans[:] = [span for span in self.spans if span.attributes.get(key) == request_id]
            return bool(spans)

        await eventually(has_come)
        (span,) = spans
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


@asynccontextmanager
async def exporting(name: str, flush_seconds: float = FLUSH_SECONDS) -> AsyncIterator[Tracing]:
    """Trace as a program of this name for a block."""
    export = Export(name, flush_seconds=flush_seconds)
    yield Tracing(export.tracer)
    await export.close()


def export_to(url: str, patch: pytest.MonkeyPatch) -> None:
    """Set what a user sets, and have spans exported at once."""
    patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


async def _accept() -> int:
    return 200


def _decoded(body: bytes) -> list[ExportedSpan]:
    request = ExportTraceServiceRequest.FromString(body)
    spans = []
    for resource in request.resource_spans:
        names = [
            a.value.string_value for a in resource.resource.attributes if a.key == "service.name"
        ]
        for scope in resource.scope_spans:
            spans += [_span(names[0], span) for span in scope.spans]
    return spans


def _span(service: str, span: WireSpan) -> ExportedSpan:
    return ExportedSpan(
        service=service,
        name=span.name,
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes={
            item.key: item.value.string_value or item.value.int_value for item in span.attributes
        },
        is_failed=span.status.code == span.status.STATUS_CODE_ERROR,
    )
