"""Logging: one line per event on standard error, as JSON or as text for people."""

import logging
import os
import sys
from typing import NoReturn

import structlog
from structlog.processors import ExceptionRenderer
from structlog.stdlib import ProcessorFormatter
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from outrider.contract.text import escaped, escaped_lines
from outrider.tracing import add_trace_id

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
    colors = is_terminal and "NO_COLOR" not in os.environ
    renderers: list[Processor] = (
        [
            structlog.processors.format_exc_info,
            _escape_values,
            structlog.dev.ConsoleRenderer(colors=colors),
        ]
        if style == "text"
        else [
            # Without local variables: they include request headers, and so API keys.
            ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(),
        ]
    )
    common: list[Processor] = [
        add_trace_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *common,
            ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: logging.getLogger("outrider"),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler()
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *common],
            processors=[ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    # Libraries log warnings and errors only.
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler])
    logging.getLogger("outrider").setLevel(level)
    # A full disk or a closed pipe must not stop the work that a line reports: it is dropped.
    logging.raiseExceptions = False


def _refuse(setting: str, value: str, allowed: str) -> NoReturn:
    from outrider.cli.running import fail

    fail(f"The setting {setting} is wrong: {value!r} is none of {allowed}")


def _escape_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape the values of an event that `ConsoleRenderer` would print as they are."""
    for key, value in event.items():
        text = value if isinstance(value, str) else repr(value)
        if not text.isprintable():
            event[key] = escaped_lines(text) if key in _SEVERAL_LINES else escaped(text)
    return event
