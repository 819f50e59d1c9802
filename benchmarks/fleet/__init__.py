"""`fleet`: what thousands of machines cost a node, with simulated ones that speak the protocol."""

from benchmarks.fleet.measure import benchmark

__all__ = ["benchmark"]
