"""The `outrider` command.

    main ─┬─ up, serve, daemon, setup
          ├─ admin ─ admin_account        subcommands that work on the database
          ├─ systemd_unit, uninstall      a unit for the machine agent; what to remove
          ├─ backup                       backup and restore of the service's data
          ├─ providers                    subcommands about the agents of this machine
          ├─ client                       commands that use the service, for people
          ├─ mcp_stdio                    `outrider mcp`: the service's tools for an agent
          ├─ doctor                       checks this machine and its service
          └─ upgrade                      whether there is a newer release, and how to install it

`welcome` is what `up` shows a person on a terminal, `workers` supervises the worker processes of
`serve --workers`. `running` has what all commands share (event loop, signals, errors),
`database_command` what the commands on the database share. `logs` and
`environment` configure logging and check environment variables at every start.
"""
