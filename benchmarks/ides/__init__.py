"""What following an IDE costs and how soon it tells: a page of our own, and a real JupyterLab."""

from benchmarks.ides.measure import benchmark

__all__ = ["benchmark"]
