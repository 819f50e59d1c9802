"""How fast events reach webhooks, against a bare loop that posts the same signed bodies."""

from benchmarks.webhooks.measure import benchmark

__all__ = ["benchmark"]
