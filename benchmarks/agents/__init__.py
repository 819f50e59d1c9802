"""How exactly and how soon an agent's status follows the agent: real ones, a stub for a model."""

from benchmarks.agents.measure import benchmark

__all__ = ["benchmark"]
