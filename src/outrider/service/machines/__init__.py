"""The machines: their sockets, their presence, and commands to them.

    endpoints        `/daemons`, and the sessions of an account and of a machine
    gateway          authenticates a machine's socket, answers its hello, handles its frames
    connection       this node's end of one socket; `sockets` closes and moves them
    handshakes       limits on connections of machines
    presence         which machines are connected, the grace period, the events of changes
    dispatch         sends a command to a machine and returns its result within the timeout
    machine_state    a machine as it last reported; `views` turns it into API resources
    session_history  the sessions that lists show: written from reports, ended by events

A command flows endpoint → dispatch → `cluster.relay` → gateway's socket, and its result the same
way back. What a machine reports is at once in the `MachineState` of the node with its socket. If
only figures have changed (memory, load), the other nodes and the database get them up to 300 s
later (`presence.LONGEST_STALE`).
"""
