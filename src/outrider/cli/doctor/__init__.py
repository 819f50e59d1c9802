"""`outrider doctor`: check what a person would check on this machine, and say what to do.

    command ──▶ local_checks      programs, agents, directories, disk, port
        │
        └────▶ service_checks     who answers at the service's address, the key, this machine

Each check is a function that returns a `finding`, one line of the result. They run in daemon
threads, which the end of the command does not wait for: a name server, a network disk or an agent
that does not answer cannot hold it up.
"""
