"""Coding agents that speak the Agent Client Protocol (https://agentclientprotocol.com).

`providers.py` starts and finds them again, `process.py` owns their processes, `transport.py`
and `peer.py` are the conversation in JSON-RPC (over the official SDK), `chat.py` makes
messages of what an agent streams and `transcript.py` keeps them, `questions.py` holds what it
asks, `controls.py` what can be changed about it, `files.py` and `terminals.py` do what it asks
of its client, and `adapter.py` makes an `Adapter` of all that. docs/acp.md tells the whole.
"""
