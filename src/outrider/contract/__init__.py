"""What the service, the machine agent and the SDK share: the API and the daemon protocol as types.

Pure data without I/O; the clock is read only for new ids. The names of fields on the wire come from
the API's specification and never change.

- `resources`, `commands`, `enrollment`, `webhooks`, `events`, `debug`, `errors`: bodies of the API.
- `frames`: the messages on a machine's WebSocket (contributing/protocol.md); `limits`: how much
  of them.
- `ids`, `targets`, `text`, `structs`, `signatures`, `providers`: the formats that those use.
"""
