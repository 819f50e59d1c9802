"""What the frames of a page report of their agents (see `look` in watch.js)."""

from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from outrider.daemon.agents.ide.panel import Seen

if TYPE_CHECKING:
    from playwright.async_api import Frame

MAX_REPORT: Final = 1024 * 1024

_log = structlog.get_logger(__name__)


class Reports:
    """The newest report of each frame."""

    def __init__(self) -> None:
        self._frames: dict[Frame, dict[str, Seen]] = {}

    def take(self, frame: "Frame", data: Any) -> bool:
        """Take a frame's report, an object in JSON; tell whether it is one."""
        if not isinstance(data, str) or len(data) > MAX_REPORT:
            return False
        try:
            self._frames[frame] = msgspec.json.decode(data, type=dict[str, Seen])
        except msgspec.DecodeError as error:
            _log.warning("a page's report cannot be read", error=str(error))
            return False
        return True

    def drop(self, frame: "Frame") -> bool:
        """Forget a frame that is not watched now, or gone; tell whether it had reported.

        One that is loaded anew reports anew; one that only changes its address does not.
        """
        return self._frames.pop(frame, None) is not None

    def clear(self) -> None:
        """Forget all of them."""
        self._frames.clear()

    def seen(self) -> dict[str, Seen]:
        """Return what each agent was last seen to be doing; one that is not shown is not there."""
        found: dict[str, Seen] = {}
        for report in self._frames.values():
            for kind, seen in report.items():
                if kind not in found or (seen.shown and not found[kind].shown):
                    found[kind] = seen
        return found

    def frame_of(self, agent: str | None) -> "Frame | None":
        """Return the frame that has this agent: of several, one that shows it."""
        having = [frame for frame, report in self._frames.items() if agent in report]
        having.sort(key=lambda frame: self._frames[frame][agent or ""].shown, reverse=True)
        return having[0] if having else None
