"""Traces of OpenTelemetry, exported by OTLP over HTTP; off unless an endpoint is set.

    tracing_from_environment ─┬─ no endpoint ─▶ OFF: spans do nothing, OpenTelemetry is not imported
                              └─ an endpoint ─▶ otel.OtelTracing ─ batches, in a thread ─▶ collector

A trace continues in two ways. In a task and the tasks that it starts, `child` finds the current
span in a context variable. In another process, or in work that another task does later, `start`
continues it from the span's `traceparent` (W3C Trace Context), which is passed on as text. So only
the parts that begin a span know of tracing.

Spans have ids, names of endpoints, commands and events, statuses and times. They never have query
strings, bodies, texts of messages or errors, or credentials.
"""

from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from contextvars import ContextVar, Token
from os import environ
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

import structlog

from outrider.contract.errors import OutriderError

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

_log = structlog.get_logger(__name__)

_NO_FIELDS: Final[Mapping[str, str]] = {}


class TracingError(OutriderError):
    """Traces cannot be exported as the environment says. The text says what to do."""


class Span:
    """A span that does nothing, and the interface of those that are exported.

    `with span:` makes it the current one for the block, and ends it with the block. An exception
    that leaves the block marks it as failed.

    Attributes:
        traceparent: what continues its trace elsewhere; None if there is no trace.
    """

    __slots__ = ()

    traceparent: str | None = None

    @property
    def log_fields(self) -> Mapping[str, str]:
        """The ids for log lines; empty if the span is not recorded, or has ended."""
        return _NO_FIELDS

    def set(self, name: str, value: str | int) -> None:
        """Set an attribute."""

    def rename(self, name: str) -> None:
        """Replace the name."""

    def fail(self, kind: str) -> None:
        """Mark it as failed.

        Args:
            kind: a low-cardinality name of the failure, such as a status; not the error's text.
        """

    def end(self) -> None:
        """End it now; for a span that is not used as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


NO_SPAN: Final = Span()

_current: Final[ContextVar[Span]] = ContextVar("outrider span", default=NO_SPAN)


class Tracing:
    """Begins spans. This one traces nothing; `OtelTracing` exports them."""

    is_on = False

    def start(self, name: str, kind: Kind, traceparent: str | None, attributes: Attributes) -> Span:  # noqa: ARG002
        """Begin a span that continues a trace, whatever span is current here.

        Args:
            traceparent: of the span's parent. A new trace begins without it, and if it is
                malformed.
        """
        return NO_SPAN

    def child(self, name: str, kind: Kind, attributes: Attributes) -> Span:  # noqa: ARG002
        """Begin a span below the current one; without one, a new trace."""
        return NO_SPAN

    async def close(self) -> None:
        """Export what is left, for a few seconds at most."""


OFF: Final = Tracing()


def current() -> Span:
    """Return the current span; `NO_SPAN` if there is none."""
    return _current.get()


def set_current(span: Span) -> Token[Span]:
    """Make a span the current one; the token is for `reset_current`."""
    return _current.set(span)


def reset_current(token: Token[Span]) -> None:
    """Restore the current span that there was before."""
    _current.reset(token)


def add_trace_id(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Add `trace_id` and `span_id` to a log line; a processor of structlog."""
    event.update(_current.get().log_fields)
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
        import outrider.tracing.otel  # noqa: F401
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
        tracing = _of_environment(service_name)
    except TracingError as error:
        _log.warning("traces are not exported", service=service_name, reason=str(error))
        tracing = OFF
    try:
        yield tracing
    finally:
        await tracing.close()


def _of_environment(service_name: str) -> Tracing:
    """Return what traces as the environment says.

    Raises:
        TracingError: it asks for traces that cannot be exported.
    """
    if not is_requested():
        return OFF
    from outrider.tracing.otel import OtelTracing

    try:
        return OtelTracing(service_name)
    except ValueError as error:
        raise TracingError(f"A setting OTEL_… of the exporter is wrong: {error}") from error


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _setting(*names: str) -> str:
    """Return the first of these variables that is set and not empty; empty if none is."""
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
