"""Coding agents that speak the Agent Client Protocol (https://agentclientprotocol.com).

`providers.py` launches and restores them; `adapter.py` is the `Adapter` of one, which puts the
others together: `lifetime.py` and `running.py` its process (`process.py`) from start to end,
`opening.py` its login and its session, `turn.py` one message, `transport.py` and `peer.py` the
conversation in JSON-RPC (over the official SDK), `updates.py` and `chat.py` what it streams as
messages, `questions.py` what it asks, `controls.py` and `changing.py` what can be changed about
it, `client.py`, `files.py` and `terminals.py` what it asks of its client. docs/acp.md tells all.
"""
