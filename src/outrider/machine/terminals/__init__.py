"""Terminals of the machine: commands in a shell, named shells, and live ones."""
