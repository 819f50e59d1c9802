"""Spans of the OpenTelemetry SDK; imported only where traces are exported.

The SDK's batch processor exports in a thread of its own, from a queue that drops spans when it is
full (`OTEL_BSP_MAX_QUEUE_SIZE`, 2048 by default). So a collector that is down or slow costs spans
and never delays a request.

The provider is not the process's global one: `outrider up` has two, one for the service and one for
the machine agent, and libraries with spans of their own add nothing to our traces.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Final, Self

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outrider import __version__
from outrider.contract.errors import ApiError
from outrider.tracing import (
    NO_SPAN,
    Attributes,
    Kind,
    Span,
    Tracing,
    current,
    reset_current,
    set_current,
)

FLUSH_SECONDS: Final = 3.0
"""How long a stop waits for the last export."""

_KINDS: Final[Mapping[Kind, SpanKind]] = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
    "internal": SpanKind.INTERNAL,
}

_UNNAMED: Final = "unknown_service"
"""The beginning of the SDK's name for a service that the environment does not name."""

_propagator: Final = TraceContextTextMapPropagator()
_log = structlog.get_logger(__name__)


class _OtelSpan(Span):
    __slots__ = ("_span", "_token", "traceparent")

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[Span] | None = None
        found = span.get_span_context()
        self.traceparent = (
            f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"
        )

    @property
    def log_fields(self) -> Mapping[str, str]:
        if not self._span.is_recording():
            return NO_SPAN.log_fields
        found = self._span.get_span_context()
        return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"}

    def set(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        self._span.end()

    def __enter__(self) -> Self:
        self._token = set_current(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            reset_current(self._token)
        if isinstance(error, ApiError):
            self.set("outrider.error.status", error.status)
            if error.status >= 500:
                self.fail(str(error.status))
        elif isinstance(error, asyncio.CancelledError):
            self.fail("cancelled")
        elif kind is not None:
            self.fail(kind.__qualname__)
        self.end()


class OtelTracing(Tracing):
    """Exports spans as the variables `OTEL_…` of the environment say.

    Args:
        service_name: the name in traces, unless the environment has one.
        flush_seconds: how long `close` waits for the last export.
    """

    is_on = True

    def __init__(self, service_name: str, *, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._flush_seconds = flush_seconds
        self._provider = TracerProvider(resource=_resource(service_name), shutdown_on_exit=False)
        exporter = _LoggingExporter(OTLPSpanExporter())
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("outrider", __version__)

    def start(self, name: str, kind: Kind, traceparent: str | None, attributes: Attributes) -> Span:
        """Begin a span that continues a trace; see `Tracing.start`."""
        parent = Context()
        if traceparent is not None:
            parent = _propagator.extract({"traceparent": traceparent}, parent)
        return _OtelSpan(self._tracer.start_span(name, parent, _KINDS[kind], attributes))

    def child(self, name: str, kind: Kind, attributes: Attributes) -> Span:
        """Begin a span below the current one; without one, a new trace."""
        return self.start(name, kind, current().traceparent, attributes)

    async def close(self) -> None:
        """Export what is left, for `flush_seconds` at most."""
        # A daemon thread: an export that hangs must not hold the end of the process.
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        await asyncio.to_thread(last.join, self._flush_seconds)
        if last.is_alive():
            _log.warning("last spans not exported in time")


class _LoggingExporter(SpanExporter):
    """Logs when exports begin to fail and when they work again, instead of each failure."""

    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self._is_failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result, reason = self._exporter.export(spans), ""
        except Exception as error:  # noqa: BLE001  # a defect of the library costs spans only
            result, reason = SpanExportResult.FAILURE, repr(error)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            _log.warning(
                "span export failed, spans are lost meanwhile", reason=reason or _messages.last()
            )
        elif self._is_failing and not is_failing:
            _log.info("span export resumed")
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Messages(logging.Handler):
    """Keeps the last messages of the library about exports, which it repeats for each batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: deque[str] = deque(maxlen=2)
        for name in (OTLPSpanExporter.__module__, "opentelemetry.sdk._shared_internal"):
            library = logging.getLogger(name)
            library.addHandler(self)
            library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

    def last(self) -> str:
        """Return them as one text: why an attempt failed, and why it was the last one."""
        return "; ".join(self._messages)


_messages: Final = _Messages()


def _resource(service_name: str) -> Resource:
    """Return what describes this process: the environment first, then our own values."""
    found = Resource.create({SERVICE_VERSION: __version__})
    if str(found.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        found = found.merge(Resource({SERVICE_NAME: service_name}))
    return found
