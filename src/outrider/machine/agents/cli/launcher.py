"""The program in a new window that replaces itself with the agent, in its exact environment.

`python -I launcher.py FILE`: FILE (private, deleted here) has a JSON object with `argv`,
`environment` and `directory`, so that neither tmux nor `ps` shows them. Only TERM comes from
tmux, because the terminal is tmux's.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def launch_file(argv: Sequence[str], environment: Mapping[str, str], directory: str) -> bytes:
    """Return the content of FILE for a program, its environment and its directory."""
    content = {"argv": [*argv], "environment": {**environment}, "directory": directory}
    return json.dumps(content).encode()


def launch_command(file: Path) -> list[str]:
    """Return the command for a new window whose FILE this is."""
    return [sys.executable, "-I", "-S", __file__, str(file)]


def main() -> None:
    """Replace this process with the program in the file."""
    file = Path(sys.argv[1])
    program = json.loads(file.read_bytes())
    file.unlink()
    try:
        os.chdir(program["directory"])
    except OSError as error:
        sys.exit(f"The directory cannot be entered: {error}")
    environment = {**program["environment"], "TERM": os.environ.get("TERM", "screen-256color")}
    signal.signal(
        signal.SIGPIPE, signal.SIG_DFL
    )  # Python ignores SIGPIPE; the agent must not inherit that
    os.execvpe(program["argv"][0], program["argv"], environment)  # noqa: S606


if __name__ == "__main__":
    main()
