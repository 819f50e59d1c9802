"""The lines of a tmux control client, from a stream that tmux 3.3a has written."""

import pytest

from outrider.machine.tmux.control import (
    LineParser,
    PaneChanged,
    ProtocolError,
    ReplyBegin,
    ReplyEnd,
    ReplyLine,
)

STREAM = r"""
%begin 1795390666 273 0
%end 1795390666 273 0
%window-add @0
%sessions-changed
%session-changed $0 outrider
%output %0 The agents are in the other windows.\015\012
%begin 1795390667 279 1
%end 1795390667 279 1
%begin 1795390667 280 1
%end 1795390667 280 1
%begin 1795390667 281 1
outrider 0
%end 1795390667 281 1
%layout-change @0 acfd,120x50,0,0,0 acfd,120x50,0,0,0 *
%subscription-changed ended $0 @0 0 %0 : 0
%begin 1795390669 284 1
%1
%end 1795390669 284 1
%begin 1795390669 285 1
outrider 1
%end 1795390669 285 1
%window-add @1
%output %1 ready\015\012
%subscription-changed ended $0 @1 1 %1 : 0
%begin 1795390670 287 1
%output %1 x
%end 1795390670 287 1
%begin 1795390670 289 1
outrider 2
%end 1795390670 289 1
%begin 1795390671 290 1
can't find pane: %9
%error 1795390671 290 1
%begin 1795390671 291 1
outrider 3
%end 1795390671 291 1
%begin 1795390672 292 1
%end 1795390672 292 1
%begin 1795390672 293 1
outrider 4
%end 1795390672 293 1
%output %1 \015\012
%output %1 got it\015\012
%subscription-changed ended $0 @1 1 %1 : 1
%begin 1795390674 295 1
%end 1795390674 295 1
%begin 1795390674 296 1
outrider 5
%end 1795390674 296 1
%unlinked-window-close @1
%begin 1795390675 298 1
%end 1795390675 298 1
%sessions-changed
%exit
""".strip().splitlines()
"""A window is opened, types something and is closed; a reply looks like a notification."""


def test_replies_and_notifications_of_a_recorded_stream() -> None:
    parser = LineParser()
    replies: list[tuple[bool, list[str], bool]] = []
    changed = []
    for line in STREAM:
        match parser.parse(line):
            case ReplyBegin() as begin:
                to_this_client, text = begin.is_to_this_client, list[str]()
            case ReplyLine(line):
                text.append(line)
            case ReplyEnd(failed):
                replies.append((to_this_client, text, failed))
            case PaneChanged(pane, has_ended):
                changed.append(f"{pane} has ended" if has_ended else pane)
    assert replies == [
        (False, [], False),  # to the command that connected the client
        (True, [], False),
        (True, [], False),
        (True, ["outrider 0"], False),
        (True, ["%1"], False),
        (True, ["outrider 1"], False),
        (True, ["%output %1 x"], False),
        (True, ["outrider 2"], False),
        (True, ["can't find pane: %9"], True),
        (True, ["outrider 3"], False),
        (True, [], False),
        (True, ["outrider 4"], False),
        (True, [], False),
        (True, ["outrider 5"], False),
        (True, [], False),
    ]
    assert changed == ["%0", "%0", "%1", "%1", "%1", "%1", "%1 has ended", None]


def test_the_end_of_another_reply_is_text() -> None:
    parser = LineParser()
    parser.parse("%begin 1795390666 273 1")
    for line in ("%end 1795390666 272 1", "%error 1795390665 273 1", "%begin 1795390666 273 1"):
        assert parser.parse(line) == ReplyLine(line)
    assert parser.parse("%error 1795390666 273 1") == ReplyEnd(failed=True)


def test_an_end_without_a_beginning_is_out_of_step() -> None:
    with pytest.raises(ProtocolError, match="%end 1795390666 273 1"):
        LineParser().parse("%end 1795390666 273 1")
