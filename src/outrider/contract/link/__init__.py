"""The link between a machine and the service, free of I/O: docs/protocol.md as a state machine.

    Outbox ─▶ MachineLink ─ batches, actions, events ─▶ caller ─ frames ─▶ socket
                   ▲                                       │
                   └─── messages, ticks, lost connections ─┘

`machine` has `MachineLink`, one for all connections that a machine agent makes, one after the
other; `outbox` has what it sends. Nothing here waits, reads a clock or touches a socket:
`daemon.link` does that.
"""
