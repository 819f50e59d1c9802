"""Logging: one line per event on standard error, as JSON or as text for people."""

import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import NoReturn

import structlog
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, WrappedLogger

from outrider.contract.text import escaped, escaped_lines
from outrider.tracing import add_trace_id

# Without local variables: they include request headers, and so API keys.
_tracebacks = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))

_SEVERAL_LINES = frozenset({"exception", "stack"})


def set_up_logs() -> None:
    """Send logs at `OUTRIDER_LOG_LEVEL` (default info) and above to standard error.

    `OUTRIDER_LOG_FORMAT` is json or text; by default text on a terminal, otherwise json.

    Values may come from other programs, so control characters are escaped: by JSON, and by
    `_escape_values` in text.
    """
    name = os.environ.get("OUTRIDER_LOG_LEVEL") or "info"
    level = logging.getLevelNamesMapping().get(name.upper())
    if level is None:
        _refuse("OUTRIDER_LOG_LEVEL", name, "debug, info, warning and error")
    is_terminal = sys.stderr.isatty()
    style = (os.environ.get("OUTRIDER_LOG_FORMAT") or ("text" if is_terminal else "json")).lower()
    if style not in ("json", "text"):
        _refuse("OUTRIDER_LOG_FORMAT", style, "json and text")
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, _escape_values, _renderer(is_terminal)]
        if style == "text"
        else [_tracebacks, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_trace_id,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Logger(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries log warnings and errors only.
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonFormatter() if style == "json" else _EscapingFormatter("%(name)s: %(message)s")
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler])


def _renderer(is_terminal: bool) -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(colors=is_terminal and "NO_COLOR" not in os.environ)


def _refuse(setting: str, value: str, allowed: str) -> NoReturn:
    from outrider.cli.running import fail

    fail(f"The setting {setting} is wrong: {value!r} is none of {allowed}")


class _Logger(structlog.PrintLogger):
    """Prints to standard error; lines that cannot be written are dropped.

    A full disk or a closed pipe must not stop the work that a line reports.
    """

    def msg(self, message: str) -> None:
        """Print a line."""
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def _escape_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape the values of an event that `ConsoleRenderer` would print as they are."""
    for key, value in event.items():
        text = value if isinstance(value, str) else repr(value)
        if not text.isprintable():
            event[key] = escaped_lines(text) if key in _SEVERAL_LINES else escaped(text)
    return event


class _JsonFormatter(logging.Formatter):
    """Formats what a library logs with the fields of our own events."""

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "event": record.getMessage(),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        }
        if record.exc_info is not None:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event)


class _EscapingFormatter(logging.Formatter):
    """Formats what a library logs, with control characters escaped."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        return escaped(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802  # logging's name
        return escaped_lines(super().formatException(ei))  # type: ignore[arg-type]
