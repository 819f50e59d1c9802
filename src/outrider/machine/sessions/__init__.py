"""Sessions: running and ended agents, whatever kind they are.

`registry` launches, finds, resumes and ends them; `session` runs one, executing what its `core`
decides on the agent's adapter; `state_events` derives events; `chat_log` and `ended_chats` keep
chats, `record` is what the journal has of a session.
"""
