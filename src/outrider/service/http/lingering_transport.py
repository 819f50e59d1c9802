"""Closes a connection so that the peer can read what was written last."""

import asyncio
from typing import Any, Final

MAX_DISCARDED: Final = 16 * 1024 * 1024
"""Bytes that are discarded after `close`; more of them are not read."""


class LingeringTransport:
    """The transport of one of uvicorn's protocols; all but `write` and `close` is as usual.

    A TCP socket that is closed with unread input sends a reset, which takes from the peer what it
    has not read yet: nginx then answers 502 instead of our 413, and a machine whose token was
    revoked connects again because it never gets the close code. So where more input is expected
    (`expects_input`), `close` ends writing alone and leaves closing to the peer. Meanwhile
    `is_closing` is true, and the protocol must `discard` what it receives.

    Attributes:
        expects_input: whether the peer is still sending, as far as the protocol knows.
        seconds: after `close` until the connection is dropped, whether or not the peer has read
            the rest.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self.expects_input = False
        self._transport = transport
        self.seconds = seconds
        self._is_lingering = False
        self._discarded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether `close` was called, or the connection is lost."""
        return self._is_lingering or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Write data; it is lost after `close`."""
        if not self.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection once the rest is written; see the class."""
        if self.is_closing():
            return
        # TLS has no end of writing of its own: closing it sends the rest and a notification.
        if self.expects_input and self._transport.can_write_eof():
            self._is_lingering = True
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()
        if self._is_lingering or self._transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(self.seconds, self._transport.abort)

    def discard(self, data: bytes) -> None:
        """Count data that was received after `close`; after too much, wait for the end unread."""
        self._discarded += len(data)
        if self._discarded > MAX_DISCARDED and not self._transport.is_closing():
            self._transport.pause_reading()
