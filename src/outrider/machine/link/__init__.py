"""The machine agent's side of the link: the connection, and the journal of its events."""
