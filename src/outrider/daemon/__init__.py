"""The machine agent: runs beside coding agents and executes the service's commands.

`app` creates the parts. `link` holds the connection to the service: commands arrive there and go
to `router`, which runs them with `agents` (sessions of coding agents) or `terminal`. What agents
report goes into the outbox, which sends it over the link and keeps events in `journal` (SQLite)
until the service has acknowledged them.

`enrollment` connects the machine to an account, `settings` holds its files. `child` and
`processes` start and end programs, `confined_directory` opens files that agents ask for,
`workspace` reads changes and files of sessions with git, `debug` builds debug bundles, and
`redaction` removes secrets from texts.
"""
