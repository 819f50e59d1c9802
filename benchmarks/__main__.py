"""Runs the benchmarks that the command line names; without names, all but the soak."""

from benchmarks import (
    access,
    acp,
    agents,
    dashboard,
    fleet,
    hostile,
    ides,
    live,
    nodes,
    roundtrip,
    sdk,
    soak,
    terminals,
    webhooks,
    workspace,
)
from benchmarks.command import main

main(
    {
        "roundtrip": roundtrip.benchmark,
        "access": access.benchmark,
        "webhooks": webhooks.benchmark,
        "fleet": fleet.benchmark,
        "nodes": nodes.benchmark,
        "acp": acp.benchmark,
        "terminals": terminals.benchmark,
        "agents": agents.benchmark,
        "ides": ides.benchmark,
        "live": live.benchmark,
        "sdk": sdk.benchmark,
        "workspace": workspace.benchmark,
        "dashboard": dashboard.benchmark,
        "hostile": hostile.benchmark,
        "soak": soak.benchmark,
    },
    omitted=["soak"],
)
