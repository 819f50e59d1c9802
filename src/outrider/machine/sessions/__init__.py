"""Sessions: running and ended agents, whatever kind they are.

`sessions` puts the parts together: `registry` has the sessions and finds them, `launching` starts
and restores them, `ending` ends them, `session_worktrees` has their git worktrees. `session` runs
one, executing what its `core` decides on the agent's adapter; `event_emitter` and `state_events`
make its events; `chat_log` and `ended_chats` keep chats, `record` is what the journal has of it.
"""
