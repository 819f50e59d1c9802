"""Simulated machines, thousands in one process (`python -m benchmarks.simulator`).

`control` is how a benchmark directs them, `machine` is one of them, `socket` its WebSocket.
"""
