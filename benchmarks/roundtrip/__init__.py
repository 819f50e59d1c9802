"""`roundtrip`: what a request costs on its way to a machine and back, beside a bare baseline."""

from benchmarks.roundtrip.measure import benchmark

__all__ = ["benchmark"]
