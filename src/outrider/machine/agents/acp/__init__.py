"""Coding agents that speak the Agent Client Protocol (https://agentclientprotocol.com).

    AcpProvider ─ launch, restore ─▶ AcpAgent ─▶ AgentLifecycle ─▶ process, AgentConnection
                                        │                                 │ updates, requests
    AgentSession ◀── observations ──────┴── AcpTurn, AcpChat, Controls ◀──┘

- `provider.py` launches and restores agents of one kind; `spec.py` is what its TOML file holds.
- `agent.py` is the adapter: one agent as its session observes and drives it.
- `process.py`: the process, the opening of its session, its end. `login.py`: the login.
- `connection.py`: JSON-RPC over the process's pipes, on top of the official SDK.
- `turn.py`: one message, from its prompt to the end of the turn that follows.
- `chat.py` turns session updates into messages of the chat log; `content.py` formats content.
- `controls.py`: modes, models and options. `client.py`: what an agent requests of its client
  (approvals, files, terminals); `terminals.py`: its commands, with `output_tail.py`.

docs/acp.md describes the behaviour.
"""
