"""Runs the demo agent until its standard input ends."""

import asyncio
from typing import cast

import acp

from outrider.demo.agent import DemoAgent

if __name__ == "__main__":
    # It has no other methods: a client gets "method not found" for them.
    asyncio.run(acp.run_agent(cast("acp.Agent", DemoAgent())))
