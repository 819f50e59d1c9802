"""How soon, how fast and at what cost an agent over the Agent Client Protocol is followed."""

from benchmarks.acp.measure import benchmark

__all__ = ["benchmark"]
