"""Live terminals: a client's WebSocket, across nodes, to the machine.

`endpoints` is the client's side, `streams` the machines' side, `relay` carries bytes between nodes.
"""
