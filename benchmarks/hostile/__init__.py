"""Measures what attacks cost other clients: the latency of a status while an attack runs.

`attacks` are the attacks, run as a process of its own for a few seconds; `bench` starts what they
are aimed at; `prober` is the other client; `measure` compares with the same service left in peace.
"""

from benchmarks.hostile.measure import benchmark

__all__ = ["benchmark"]
