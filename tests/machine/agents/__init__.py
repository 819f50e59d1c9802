"""Agents: the parts, scripted ones, and real ones."""
