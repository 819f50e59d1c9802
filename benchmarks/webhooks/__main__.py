"""Runs this benchmark alone."""

from benchmarks.command import main
from benchmarks.webhooks import benchmark

main({"webhooks": benchmark})
