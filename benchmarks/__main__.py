"""Runs the benchmarks that the command line names; without names, all but the soak."""

from benchmarks.command import main

main(
    [
        "roundtrip",
        "access",
        "webhooks",
        "fleet",
        "nodes",
        "acp",
        "terminals",
        "agents",
        "ides",
        "live",
        "sdk",
        "workspace",
        "dashboard",
        "hostile",
        "soak",
    ],
    omitted=["soak"],
)
