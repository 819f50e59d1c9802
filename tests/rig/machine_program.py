"""A scripted machine as a program of its own, to be killed or stopped: URL and token in.

It says `ready`, then `took` for each command; the word `answer` makes it answer them, the word
`quietly` leaves the `took` out.
"""

import asyncio
import sys

from tests.rig.machine import ScriptedMachine, hello


async def main(url: str, token: str, *words: str) -> None:
    """Connect, and take commands until killed."""
    async with ScriptedMachine(url, token, hello()) as machine:
        print("ready", flush=True)  # noqa: T201
        while True:
            command = await machine.waits_for_a_command()
            if "quietly" not in words:
                print("took", flush=True)  # noqa: T201
            if "answer" in words:
                await machine.answers(command)


asyncio.run(main(*sys.argv[1:]))
