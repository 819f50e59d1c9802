"""Agents in a terminal: the mirror of `outrider.daemon.agents.cli`."""
