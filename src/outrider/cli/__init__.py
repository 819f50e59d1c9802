"""The `outrider` command."""

from outrider.imports import without

# structlog imports rich for tracebacks that our logs do not use: 5 MB, and 50 ms of each start.
with without("rich"):
    import structlog  # noqa: F401
