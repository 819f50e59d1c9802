"""The memory of a process, as Linux counts it."""

import re
from pathlib import Path
from typing import Final

_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_rss(pid: int) -> int:
    """Return the most resident memory since the start or `reset_peak_rss`, in bytes."""
    (kilobytes,) = _PEAK.findall(Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(kilobytes) * 1024


def reset_peak_rss(pid: int) -> None:
    """Set the peak to what the process has now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")
