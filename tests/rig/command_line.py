"""`outrider` in one process that runs command after command: each start would take half a second.

For commands of which nothing is tested but what they do, print and end with. As a program it reads
a line of JSON for each command, its arguments and its whole environment, and writes one.
"""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.rig.processes import PROCESS_TIMEOUT, Outcome


class CommandLine:
    """The process, which runs one command at a time; killed at the end."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__,
            cwd=Path(__file__).parents[2],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=16 * 1024 * 1024,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.communicate()

    async def __call__(self, *arguments: str, env: Mapping[str, str]) -> Outcome:
        """Run a command to its end, as `processes.outrider` does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn, asyncio.timeout(PROCESS_TIMEOUT):
            self._process.stdin.write(json.dumps([arguments, dict(env)]).encode() + b"\n")
            code, out, err = json.loads(await self._process.stdout.readline())
        return Outcome(code, out, err)


def main() -> None:
    """Run the commands that standard input names."""
    from typer.testing import CliRunner

    from outrider.cli import client
    from outrider.cli.main import app

    client.register(app)
    runner = CliRunner()
    for line in sys.stdin:
        arguments, env = json.loads(line)
        os.environ.clear()
        os.environ.update(env)
        result = runner.invoke(app, arguments, prog_name="outrider")
        trace = ""
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            trace = "".join(traceback.format_exception(result.exception))
        said = [int(result.exit_code), result.stdout, result.stderr + trace]
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
