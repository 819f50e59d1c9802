"""Runs one node for half an hour under a mixed load with faults: what grows is a leak.

`load` is the clients, `samples` reads the node's figures every few seconds, `measure` compares
those of the end with those after the first minutes. The machines are those of `benchmarks.fleet`.
"""

from benchmarks.soak.measure import benchmark

__all__ = ["benchmark"]
