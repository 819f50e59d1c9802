"""The machines: their sockets, their presence, and commands to them.

    gateway          authenticates a machine's socket, answers its hello, handles its frames
    presence         which machines are connected, the grace period, the events of changes
    dispatch         sends a command to a machine and returns its result within the timeout
    relay            reaches machines whose sockets are on other nodes
    terminals        live terminals, streams of bytes (`terminal_relay` across nodes)
    directory        the machines of all nodes, for lists and status
    nodes            heartbeats, and taking over the machines of dead nodes
    machine_state    a machine as it last reported; `views` turns it into API resources
    session_history  the sessions that lists show: written from reports, ended by events
    bus              messages between nodes: in memory, or over Redis (`redis_bus`)

A command flows api → dispatch → relay → (bus → relay of the machine's node) → gateway's socket, and
its result the same way back.

What a machine reports is at once in the `MachineState` of the node with its socket. If only figures
have changed (memory, load), the other nodes and the database get them up to 300 s later
(`presence.LONGEST_STALE`).
"""
