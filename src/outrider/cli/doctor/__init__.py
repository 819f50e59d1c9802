"""`outrider doctor`: check what a person would check on this machine, and say what to do.

    command ──▶ local_facts, service_facts   gather facts; each has a time limit
        │
        └────▶ local_checks, service_checks  decide, as pure functions of the facts
                        │
                        └──▶ finding         one line of the result each

Facts are gathered in daemon threads, which the end of the command does not wait for: a name
server, a network disk or an agent that does not answer cannot hold it up.
"""
