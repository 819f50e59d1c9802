"""The state machine of one session, free of I/O: it takes events and yields commands.

    adapter, requests, timer ─ events ─▶ AgentCore.handle ─ commands ─▶ AgentSession (session.py)

`agent_core` has the acts on an agent and joins three small machines: `queue` (messages that wait),
`turn` (the events of turns, and which message began which) and `questions` (who may answer).
`protocol` has the events and commands.

The caller executes each command before it requests the next one, exhausts the iterator, and does
not call `handle` while it executes a command. The time is an argument. The `SessionRecord` and the
journal's queue are all that survives a restart.

Invariants, if the daemon is killed at any moment:

- A queued message is in the journal (`Enqueue`) before its sender gets the reply, and is removed
  (`Dequeue`) only after the agent has accepted it, or after `MAX_ATTEMPTS` failed deliveries; then
  an error is emitted. If the daemon is killed in between, the message is delivered again after the
  restart under the same id, and `Agent.deliver` skips a message that the agent has accepted
  already. So it is delivered exactly once and never lost.
- The reply to a message that is not queued is sent only after the agent has accepted it. If the
  daemon is killed before that, its sender gets no reply, and the message is not sent again.
- An event is emitted before it is recorded as emitted (`Emit`, then `Save`). If the daemon is
  killed in between, the next one emits it again: at least once. After `Save` it is not repeated.
- An interrupted turn is over when the reply is sent: its agent was observed neither generating nor
  waiting. The queue is not interrupted: its oldest message is delivered after that.
- Answers are not in the journal. If the daemon is killed before the agent has received one, the
  question is pending again after the restart; after that, the agent has continued. The adapter
  derives the id of a question from its content, so that it keeps its id, and its event is not
  repeated.
"""
