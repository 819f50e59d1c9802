"""The machines: their sockets, what they are known to run, and commands to them.

`gateway` speaks with a machine, `presence` remembers it (`roster` has those of this node), and
`dispatch` carries a request's command to it and its answer back, over a `bus`.
"""
