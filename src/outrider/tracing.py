"""Traces of OpenTelemetry: spans, and how a trace continues; docs/monitoring.md describes them.

    tracing_from_environment ─┬─ no endpoint ─▶ OFF: spans of OpenTelemetry's API, which do nothing
                              └─ an endpoint ─▶ trace_export ─ batches, in a thread ─▶ collector

A trace continues in two ways. In a task and the tasks that it starts, `child` finds the current
span in OpenTelemetry's context. In another process, or in work that another task does later,
`start` continues it from the span's `traceparent` (W3C Trace Context), which is passed on as text.

Spans have ids, names of endpoints, commands and events, statuses and times. They never have query
strings, bodies, texts of messages or errors, or credentials.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from contextvars import Token
from os import environ
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import structlog
from opentelemetry import context, trace
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outrider.contract.errors import ApiError, OutriderError

Kind = Literal["server", "client", "consumer", "internal"]
"""The role of a span; see `opentelemetry.trace.SpanKind`."""

Attributes = Mapping[str, str | int]

SERVICE: Final = "outrider"
MACHINE_AGENT: Final = "outrider-daemon"
"""The names of the two programs in traces."""

_TRACES_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_TRACES_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_DISABLED: Final = "OTEL_SDK_DISABLED"

_propagator: Final = TraceContextTextMapPropagator()
_log = structlog.get_logger(__name__)


class TracingError(OutriderError):
    """Traces cannot be exported as the environment says. The text says what to do."""


class Span:
    """A span. `with span:` makes it the current one for the block, and ends it with the block.

    An exception that leaves the block marks it as failed, without the exception's text.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._token: Token[context.Context] | None = None

    @property
    def traceparent(self) -> str | None:
        """What continues its trace elsewhere; None if there is no trace."""
        if not self._span.get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, trace.set_span_in_context(self._span))
        return carrier.get("traceparent")

    def set(self, name: str, value: str | int) -> None:
        """Set an attribute."""
        self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Replace the name."""
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark it as failed.

        Args:
            kind: a low-cardinality name of the failure, such as a status; not the error's text.
        """
        self._span.set_attribute("error.type", kind)
        self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """End it now; for a span that is not used as a context manager."""
        self._span.end()

    def __enter__(self) -> Self:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._token is not None
        context.detach(self._token)
        if isinstance(error, ApiError):
            self.set("outrider.error.status", error.status)
            if error.status >= 500:
                self.fail(str(error.status))
        elif isinstance(error, asyncio.CancelledError):
            self.fail("cancelled")
        elif kind is not None:
            self.fail(kind.__qualname__)
        self.end()


class Tracing:
    """Begins spans.

    Args:
        tracer: of an SDK that exports them; without it, they do nothing but pass a trace on.
    """

    def __init__(self, tracer: trace.Tracer | None = None) -> None:
        self.is_on = tracer is not None
        self._tracer = tracer or trace.NoOpTracer()

    def start(self, name: str, kind: Kind, traceparent: str | None, attributes: Attributes) -> Span:
        """Begin a span that continues a trace, whatever span is current here.

        Args:
            traceparent: of the span's parent. A new trace begins without it, and if it is
                malformed.
        """
        if not self.is_on and traceparent is None:
            return Span(trace.INVALID_SPAN)  # nothing is recorded, and no trace is passed on
        carrier = {} if traceparent is None else {"traceparent": traceparent}
        parent = _propagator.extract(carrier, context.Context())
        return Span(self._tracer.start_span(name, parent, SpanKind[kind.upper()], attributes))

    def child(self, name: str, kind: Kind, attributes: Attributes) -> Span:
        """Begin a span below the current one; without one, a new trace."""
        return self.start(name, kind, current().traceparent, attributes)


OFF: Final = Tracing()


def current() -> Span:
    """Return the current span; one without a trace if there is none."""
    return Span(trace.get_current_span())


def add_trace_id(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add `trace_id` and `span_id` of a recorded span to a log line; a processor of structlog."""
    span = trace.get_current_span()
    if span.is_recording():
        ids = span.get_span_context()
        event["trace_id"] = trace.format_trace_id(ids.trace_id)
        event["span_id"] = trace.format_span_id(ids.span_id)
    return event


def is_requested() -> bool:
    """Return whether the environment asks for traces.

    Raises:
        TracingError: they cannot be exported as it says.
    """
    endpoint = _setting(_TRACES_ENDPOINT, _ENDPOINT)
    exporter = _setting(_EXPORTER).lower()
    if not endpoint or exporter == "none" or _setting(_DISABLED).lower() == "true":
        return False
    if exporter not in ("", "otlp"):
        raise TracingError(
            f"The setting {_EXPORTER} is wrong: Outrider exports traces with otlp, or not at all "
            f"(none); not with {exporter!r}"
        )
    protocol = _setting(_TRACES_PROTOCOL, _PROTOCOL) or "http/protobuf"
    if protocol != "http/protobuf":
        raise TracingError(
            f"The setting {_PROTOCOL} is wrong for Outrider, which exports traces with "
            f"http/protobuf and not with {protocol!r}: set {_TRACES_PROTOCOL} to http/protobuf and "
            f"{_TRACES_ENDPOINT} to an address for it, or {_EXPORTER} to none"
        )
    if not _is_address(endpoint):
        raise TracingError(
            f"The setting {_ENDPOINT} is wrong: it must be an address such as http://127.0.0.1:4318"
        )
    try:
        import outrider.trace_export  # noqa: F401
    except ImportError as error:
        raise TracingError(
            f"{_ENDPOINT} is set, but the packages that export traces are not installed "
            f"({error.name} is missing): run `pip install opentelemetry-sdk "
            f"opentelemetry-exporter-otlp-proto-http`, or unset it, or set {_EXPORTER} to none"
        ) from error
    return True


@asynccontextmanager
async def tracing_from_environment(service_name: str) -> AsyncIterator[Tracing]:
    """Trace for a block as the environment says; what is left is exported at its end.

    Where traces cannot be exported as it says, a warning is logged and nothing is traced: the
    variables may be meant for other programs, such as the agents, which inherit them.

    Args:
        service_name: the name in traces, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES`
            has one.
    """
    try:
        if not is_requested():
            yield OFF
            return
        from outrider.trace_export import Export

        export = Export(service_name)
    except (TracingError, ValueError) as error:  # the second: the SDK refuses a variable
        reason = f"A setting OTEL_… is wrong: {error}" if type(error) is ValueError else str(error)
        _log.warning("traces are not exported", service=service_name, reason=reason)
        yield OFF
        return
    try:
        yield Tracing(export.tracer)
    finally:
        await export.close()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _setting(*names: str) -> str:
    """Return the first of these variables that is set and not empty; empty if none is."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
