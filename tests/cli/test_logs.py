"""What goes to the log, and what must not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.processes import PROCESS_TIMEOUT

_BREAKS = """
import structlog
from outrider.cli.logs import set_up_logs

set_up_logs()

def serve(headers):
    raise ValueError("it broke")

try:
    serve({"authorization": "Bearer " + "-".join(("ork", "secret"))})
except ValueError:
    structlog.get_logger().exception("request failed")
"""


def test_a_trace_is_without_the_values_of_variables() -> None:
    """The headers of a request, with its key, are among them."""
    done = subprocess.run(
        [sys.executable, "-c", _BREAKS],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROCESS_TIMEOUT,
    )
    assert "it broke" in done.stderr
    assert "serve" in done.stderr
    assert "ork-secret" not in done.stderr


_HOSTILE = """
import logging
import structlog
from outrider.cli.logs import set_up_logs

set_up_logs()

class Strange:
    def __repr__(self):
        return "strange\\x1b[31m"

log = structlog.get_logger()
log.info("machine connected\\x1b[2J", version="1\\x1b]0;owned\\x07\\n", of=[Strange(), "\\x9b2J"])
try:
    raise ValueError("broke\\x1b[2J")
except ValueError:
    log.exception("request failed", address="\\u202egro.elpmaxe")
    logging.getLogger("library").exception("bad peer: \\x1b[2J\\nforged: line")
"""


def test_what_others_say_does_not_reach_a_terminal_unescaped() -> None:
    """A machine's hostname may hold an escape sequence; ConsoleRenderer prints it as it is."""
    ours, theirs = os.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", _HOSTILE], stderr=theirs, check=True, timeout=PROCESS_TIMEOUT
        )
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    text = re.sub(r"\x1b\[\d*m", "", shown)  # the renderer's own colours
    text = text.replace("\\\\", "\\")  # what it quotes, it escapes once more
    assert [line for line in text.splitlines() if not line.isprintable()] == []
    for escaped in (r"\x1b[2J", r"\x1b]0;owned\x07", r"strange\x1b[31m", r"\x9b2J", r"\u202egro"):
        assert escaped in text
    assert "forged: line" not in text.splitlines()
    assert text.count("ValueError: broke\\x1b[2J") == 2


_FULL_DISK = """
import os, resource, sys
import structlog
from outrider.cli.logs import set_up_logs

os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
set_up_logs()
for _ in range(100):
    structlog.get_logger().warning("a line that does not fit any more")
print("went on", flush=True)
os._exit(0)  # at a usual end, Python would write what is left of the last line
"""


def test_a_full_disk_does_not_end_what_logs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-B", "-c", _FULL_DISK, str(log)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROCESS_TIMEOUT,
    )
    assert done.stdout == "went on\n"
    assert log.stat().st_size <= 1000


_LOGS = """
import logging
import structlog
from outrider.cli.logs import set_up_logs

set_up_logs()
structlog.get_logger().info("machine connected", version="1\\x1b[2J")
logging.getLogger("library").warning("bad\\npeer")
"""


def _logged(on_terminal: bool, **environment: str) -> str:
    """Return the line that a program logs, on a terminal or to a pipe."""
    ours, theirs = os.openpty() if on_terminal else os.pipe()
    try:
        subprocess.run(
            [sys.executable, "-c", _LOGS],
            stderr=theirs,
            check=True,
            timeout=PROCESS_TIMEOUT,
            env={**os.environ, "NO_COLOR": "1"} | environment,
        )
        return os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    ("on_terminal", "environment", "is_json"),
    [
        (False, {}, True),
        (True, {}, False),
        (False, {"OUTRIDER_LOG_FORMAT": "text"}, False),
        (True, {"OUTRIDER_LOG_FORMAT": "JSON"}, True),
    ],
)
def test_a_line_is_json_or_text_as_the_setting_says(
    on_terminal: bool, environment: dict[str, str], is_json: bool
) -> None:
    line, of_library = _logged(on_terminal, **environment).splitlines()
    if is_json:
        event = json.loads(line)
        assert (event["event"], event["level"]) == ("machine connected", "info")
        event = json.loads(of_library)
        assert (event["event"], event["level"], event["logger"]) == (
            "bad\npeer",
            "warning",
            "library",
        )
    else:
        assert line.isprintable()
        assert "machine connected" in line
        assert "version=" in line
        assert of_library.isprintable()
        assert r"bad\npeer" in of_library
        assert "[library]" in of_library
