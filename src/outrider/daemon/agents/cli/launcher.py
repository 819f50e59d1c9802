"""The program in a new window that replaces itself with the agent, in its exact environment.

`python -I launcher.py FILE`: FILE (mode 0600, deleted here) has a JSON object with `argv`,
`environment` and `directory`, so that neither tmux nor `ps` shows them. Only TERM comes from
tmux, because the terminal is tmux's.
"""

import json
import os
import signal
import sys
from pathlib import Path


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
