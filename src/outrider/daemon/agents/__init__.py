"""Coding agents: terminals (`cli/`), the Agent Client Protocol (`acp/`) and IDEs (`ide/`).

- `sessions.py`: every session of this machine; launch, find, stop, restore.
- `core.py`: the state machine of one session, free of I/O: what may be done, and when. Its
  events and commands are in `core_protocol.py`.
- `session.py`: carries out the core's commands: tasks, the timer, the journal, callers.
- `adapter.py`: the interface of an adapter, which observes, delivers and reads. Each of `cli/`,
  `acp/` and `ide/` implements it.
- `provider.py`: the interface of a provider, which launches and restores adapters, and what its
  TOML file holds; `providers.py` loads all of them.

A command goes router → sessions → session → core → session → adapter; what an adapter observes
goes session → core, and from there to the journal, the events and the service.
"""
