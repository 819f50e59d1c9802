"""Export of traces with OpenTelemetry's SDK; imported only where traces are exported.

The SDK's batch processor exports in a thread of its own, from a queue that drops spans when it is
full (`OTEL_BSP_MAX_QUEUE_SIZE`, 2048 by default). So a collector that is down or slow costs spans
and never delays a request.

The provider is not the process's global one: `outrider up` has two, one for the service and one for
the machine agent, and libraries with spans of their own add nothing to our traces.
"""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from outrider import __version__

FLUSH_SECONDS: Final = 3.0
"""How long a stop waits for the last export."""

_UNNAMED: Final = "unknown_service"
"""The beginning of the SDK's name for a service that the environment does not name."""

_log = structlog.get_logger(__name__)


class Export:
    """Exports spans as the variables `OTEL_…` of the environment say.

    Args:
        service_name: the name in traces, unless the environment has one.
        flush_seconds: how long `close` waits for the last export.

    Attributes:
        tracer: begins the spans.

    Raises:
        ValueError: a variable is wrong.
    """

    def __init__(self, service_name: str, *, flush_seconds: float = FLUSH_SECONDS) -> None:
        self._flush_seconds = flush_seconds
        self._provider = TracerProvider(resource=_resource(service_name), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_LoggingExporter(OTLPSpanExporter())))
        self.tracer = self._provider.get_tracer("outrider", __version__)

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
            result, reason = self._exporter.export(spans), _messages.last
        except Exception as error:  # noqa: BLE001  # a defect of the library costs spans only
            result, reason = SpanExportResult.FAILURE, repr(error)
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing and not self._is_failing:
            _log.warning("span export failed, spans are lost meanwhile", reason=reason)
        elif self._is_failing and not is_failing:
            _log.info("span export resumed")
        self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Messages(logging.Handler):
    """Keeps the library's last message about exports, which it repeats for each batch."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""
        for name in (OTLPSpanExporter.__module__, "opentelemetry.sdk._shared_internal"):
            library = logging.getLogger(name)
            library.addHandler(self)
            library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


_messages: Final = _Messages()


def _resource(service_name: str) -> Resource:
    """Return what describes this process: the environment first, then our own values."""
    resource = Resource.create({SERVICE_VERSION: __version__})
    if str(resource.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        resource = resource.merge(Resource({SERVICE_NAME: service_name}))
    return resource
