"""Coding agents: terminals (`cli/`), the Agent Client Protocol (`acp/`) and IDEs (`ide/`).

- `sessions.py`: every session of this machine; launch, find, stop, restore.
- `core.py`: the state machine of one session, free of I/O: what may be done, and when. Its
  events and commands are in `core_protocol.py`.
- `session.py`: carries out the core's commands: tasks, the timer, the journal, callers.
- `state_events.py`: which events follow from a session's state and chat, free of I/O; `deltas.py`:
  the text of messages while they are written; `turn_spans.py`: the trace spans of turns.
- `chat_selection.py`: which messages a response has, and cursors; `ended_chats.py`: the chats of
  ended sessions.
- `provider.py` and `adapter.py`: the interfaces. A provider launches and restores adapters; an
  adapter observes, delivers and reads. Each of `cli/`, `acp/` and `ide/` implements them, in its
  `provider.py` and `agent.py`; its `spec.py` is what its provider files hold. `pane.py`: the
  window that an agent in a terminal has.
- `provider_spec.py`: what every provider file holds, and how the files are read and merged;
  `providers.py` makes all providers of this machine from them.
- `chat_log.py`: our record of a chat, for agents that keep none. `guards.py` escapes messages that
  an agent would take for commands. `failure.py` words errors of agents that do not
  start. `patterns.py` runs the patterns of provider files under a time limit.
- `inspection.py`: what `outrider providers` shows, without a running daemon.

A command goes router → sessions → session → core → session → adapter; what an adapter observes
goes session → core, and from there to the journal, the events and the service.
"""
