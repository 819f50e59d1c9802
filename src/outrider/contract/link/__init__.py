"""The link between a machine and the service: two state machines (contributing/protocol.md).

    machine agent                                                        service
    Outbox ─▶ MachineLink ─ frames ─▶ socket ════ socket ─ messages ─▶ ServiceLink ─ events ─▶
              actions, events ◀─ messages ─┘        └─ frames ◀─ welcome, event_stored, close

`machine` has `MachineLink`, one for all connections that a machine agent makes, one after the
other; `outbox` has what it sends. `service` has `ServiceLink`, one for each connection, and
`LinkTable`, the connections of a node. None of them waits, reads a clock or touches a socket:
`machine.link` and `service.machines` do that. tests/contract/link runs both ends against each
other, with faults at every step.
"""
