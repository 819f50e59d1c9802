"""The `outrider` command.

`main` defines `up`, `serve`, `daemon` and `setup`; `admin` (with `admin_account`) and `providers`
are groups of subcommands. `workers` is the supervisor of `serve --workers`. `running` and
`database_command` are what commands share, `logs` and `environment` set up every run.
"""

from outrider.imports import without

# structlog imports rich for tracebacks that our logs do not use: 5 MB, and 50 ms of each start.
with without("rich"):
    import structlog  # noqa: F401
