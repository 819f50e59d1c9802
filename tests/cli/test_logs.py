"""What goes to the log, and what must not."""

import subprocess
import sys

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
        [sys.executable, "-c", _BREAKS], capture_output=True, text=True, check=True, timeout=30
    )
    assert "it broke" in done.stderr
    assert "serve" in done.stderr
    assert "ork-secret" not in done.stderr
