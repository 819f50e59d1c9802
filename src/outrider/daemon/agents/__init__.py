"""Coding agents: one `AgentSession` for each that runs, over an adapter for its kind.

`session.py` holds what is the same for all (queue, approvals, events); an adapter
(`cli/`, later `acp/` and `ide/`) knows how one kind of agent is started, told and read.
"""
