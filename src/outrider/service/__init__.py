"""The service: the REST API, accounts, and the gateway that machines connect to.

    request ─▶ http ─▶ a subject's endpoints ─▶ its logic ─▶ its store ─▶ database
                                  └─ machines.dispatch ─ cluster ─▶ machines.gateway ─▶ the machine
    a machine's event ─▶ machines.gateway ─▶ webhooks.event_intake ─▶ webhooks, events (streams)

Each subject is a package with its endpoints, logic and store: `accounts`, `machines`, `agents`,
`terminals`, `events`, `webhooks`, `mcp`. `http` is the framework below them, `cluster` what nodes
say to each other, `database` the engine, tables and migrations, `operations` what an operator does.
`endpoints` is the table of all endpoints; `components` creates the parts, `app` connects and runs
them, `server` serves them on a port.
"""
