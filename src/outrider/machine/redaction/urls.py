"""Passwords in URLs, data source names and `.pgpass`, also where they are not escaped."""

import re
from collections.abc import Iterator
from typing import Final

from outrider.machine.redaction.scan import MARK, AnchoredDetector, Scan, Secret
from outrider.machine.redaction.values import has_letters_and_digits, is_placeholder

KIND: Final = "url-password"

_REST: Final = re.compile(r"[^\s\"'<>`\\]{0,1024}+")
_HOST: Final = re.compile(
    r"(?:[\w.-]{1,253}|\[[\da-fA-F:.]{2,45}\])?(?P<port>:\d{1,5})?(?P<path>[/?#]|\Z)"
)
_LONG: Final = re.compile(r"[A-Za-z0-9_\-.~%]{20,512}")
_PGPASS: Final = re.compile(
    r"(?<![^\s\"'│┃║|(=])[\w.*-]{1,100}+:(?:\d{4,5}|\*):(?P<database>[^\s:\"'\\]{1,64}+)"
    r":[^\s:\"'\\]{1,64}+:(?P<secret>[^\s\"')]{1,256}+)"
)
_DSN: Final = re.compile(r"(?:^|[\s\"'`=(])[\w.-]{1,64}:(?P<secret>[^\s\"'`@]{1,128})\Z")


def _user_info(scan: Scan, place: int) -> Secret | None:
    """Find the password in a URL, even if it has characters that should be escaped."""
    match = scan.match(_REST, place + 3, 1024)
    rest = "" if match is None else match[0]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, password = authority.partition(":")
    web = scan.low[max(0, place - 5) : place].endswith(("http", "https", "ws", "wss"))
    end = authority.rfind("@")
    if MARK in rest or user.startswith("["):
        return None
    # Of a web address, an `@` behind the first slash is part of the path: `/@scope/package`.
    if not web or (end < 0 and colon and not is_placeholder(password)):
        end = _last_at(rest, password, web=web) or end
    if end < 0:
        return None
    # Again, up to the real end: the password may contain `/`, `?` and `#`.
    user, colon, password = rest[:end].partition(":")
    begin = place + 3
    if not colon:
        is_token = _LONG.fullmatch(user) and has_letters_and_digits(user)
        return Secret(begin, begin + end, KIND) if is_token else None
    if is_placeholder(password):
        return None
    return Secret(begin + len(user) + 1, begin + end, KIND)


def _last_at(rest: str, port: str, *, web: bool) -> int | None:
    """Return the index of the last `@` before a host, for a password with unescaped characters.

    `port` is the text after the first colon: if it is a number, the rest may be a path.
    """
    end = rest.rfind("@")
    host = _HOST.match(rest, end + 1)
    if end < 0 or host is None or is_placeholder(port):
        return None
    if port.isdigit() and (web or "?" in rest[:end] or not (host["port"] or host["path"] == "/")):
        return None
    return end


def _go_dsn(scan: Scan, place: int) -> Secret | None:
    """Find `user:password@tcp(host:3306)/app`."""
    match = _DSN.search(scan.before(place, 200))
    if match is None or is_placeholder(match["secret"]):
        return None
    return Secret(place - len(match["secret"]), place, KIND)


class _PgPassDetector:
    """Finds the passwords of a `.pgpass`: `host:port:database:user:password`."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the passwords, in order."""
        for match in scan.everywhere(_PGPASS):
            if not match["database"].isdigit() and not match["secret"].startswith(MARK):
                yield Secret(*match.span("secret"), "pgpass")


DETECTORS: Final = (
    AnchoredDetector(("://",), _user_info),
    AnchoredDetector(("@tcp(", "@unix(", "@udp("), _go_dsn),
    _PgPassDetector(),
)
