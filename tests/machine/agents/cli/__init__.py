"""Agents in a terminal: the mirror of `outrider.machine.agents.cli`."""
