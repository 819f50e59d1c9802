"""Run in a new window, in place of it the agent: its exact directory and environment.

`python -I launcher.py FILE`: FILE (mode 0600, removed here) holds a JSON object with `argv`,
`environment` and `directory`, so that neither tmux nor `ps` sees them. Only TERM is tmux's, for
the terminal is tmux's too.
"""

import json
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Become the program that the file describes."""
    file = Path(sys.argv[1])
    order = json.loads(file.read_bytes())
    file.unlink()
    try:
        os.chdir(order["directory"])
    except OSError as error:
        sys.exit(f"The directory cannot be entered: {error}")
    environment = {**order["environment"], "TERM": os.environ.get("TERM", "screen-256color")}
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python's own choice must not be inherited
    os.execvpe(order["argv"][0], order["argv"], environment)  # noqa: S606


if __name__ == "__main__":
    main()
