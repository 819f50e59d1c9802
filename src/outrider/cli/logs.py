"""Logs: one line an event on standard error, JSON where no person is looking."""

import logging
import os
import sys

import structlog
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer

# Without the values of variables: a request's headers, with its key, are among them.
_tracebacks = ExceptionRenderer(ExceptionDictTransformer(show_locals=False))


def set_up_logs() -> None:
    """Send logs to standard error, from the level that `OUTRIDER_LOG_LEVEL` names (info)."""
    name = os.environ.get("OUTRIDER_LOG_LEVEL", "info").upper()
    level = logging.getLevelNamesMapping().get(name, logging.INFO)
    for_people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if for_people else [_tracebacks]),
            structlog.dev.ConsoleRenderer() if for_people else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Libraries speak up only when something is wrong.
    logging.basicConfig(level=max(level, logging.WARNING), format="%(name)s: %(message)s")
