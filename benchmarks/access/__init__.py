"""What the access layer costs: the same build with it, and with it bypassed."""

from benchmarks.access.measure import benchmark

__all__ = ["benchmark"]
