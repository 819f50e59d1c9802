"""Secrets in known formats: URLs, headers and credential files."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from outrider.machine.redaction.scan import MARK, AnchoredDetector, Scan, Secret, pattern_detector
from outrider.machine.redaction.values import (
    has_letters_and_digits,
    is_placeholder,
    is_unlike_a_word,
    looks_like_a_password,
)

# URLs

_REST: Final = re.compile(r"[^\s\"'<>`\\]{0,1024}+")
_HOST: Final = re.compile(
    r"(?:[\w.-]{1,253}|\[[\da-fA-F:.]{2,45}\])?(?P<port>:\d{1,5})?(?P<path>[/?#]|\Z)"
)
_LONG: Final = re.compile(r"[A-Za-z0-9_\-.~%]{20,512}")


def _user_info(scan: Scan, place: int) -> Secret | None:
    """Find the password in a URL, even if it has characters that should be escaped."""
    found = scan.match(_REST, place + 3, 1024)
    rest = "" if found is None else found[0]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, colon, password = authority.partition(":")
    web = scan.low[max(0, place - 5) : place].endswith(("http", "https", "ws", "wss"))
    end = authority.rfind("@")
    if MARK in rest or user.startswith("["):
        return None
    if not web or (end < 0 and colon and not is_placeholder(password)):
        end = _last_at(rest, password, web=web) or end
    if end < 0:
        return None
    user, colon, password = rest[:end].partition(":")
    begin = place + 3
    if not colon:
        is_token = _LONG.fullmatch(user) and has_letters_and_digits(user)
        return Secret(begin, begin + end, "url-password") if is_token else None
    if is_placeholder(password):
        return None
    return Secret(begin + len(user) + 1, begin + end, "url-password")


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


_PARAMETERS: Final = ("sig", "signature", "x-amz-signature", "x-goog-signature", "code", "key",
                      "auth", "sid")  # fmt: skip
_HOOKS: Final = (
    r"hooks\.slack\.com/(?:services|workflows|triggers)/(?:[\w-]{1,40}/){0,3}(?P<secret>[\w-]{12,}+)"
    r"|discord(?:app)?\.com/api(?:/v\d{1,2})?/webhooks/\d{10,25}/(?P<discord>[\w-]{20,}+)"
    r"|webhook\.office\.com/webhook\w{0,3}/(?P<teams>[\w@/-]{16,}+)"
    r"|outlook\.office\.com/webhook/(?P<outlook>[\w@/-]{16,}+)"
    r"|hooks\.zapier\.com/hooks/catch/(?P<zapier>[\w/]{8,}+)"
    r"|maker\.ifttt\.com/trigger/[\w-]{1,80}/(?:json/)?with/key/(?P<ifttt>[\w-]{12,}+)"
    r"|api\.telegram\.org/(?:file/)?bot(?P<telegram>\d{8,10}:[\w-]{30,}+)"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v2/hook/(?P<feishu>[\w-]{16,}+)"
)
_HOOK: Final = re.compile(_HOOKS, re.IGNORECASE)
_HOOK_HOSTS: Final = (
    "hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com",
    "outlook.office.com", "hooks.zapier.com", "maker.ifttt.com", "api.telegram.org",
    "open.feishu.cn", "open.larksuite.com",
)  # fmt: skip


def _webhook(scan: Scan, place: int) -> Secret | None:
    """Find the secret part of a webhook URL, which allows anybody to post to it."""
    hook = scan.match(_HOOK, place, 600)
    if hook is None or hook.lastgroup is None:
        return None
    return Secret(*hook.span(hook.lastgroup), "webhook-url")


_DSN: Final = re.compile(r"(?:^|[\s\"'`=(])[\w.-]{1,64}:(?P<secret>[^\s\"'`@]{1,128})\Z")


def _go_dsn(scan: Scan, place: int) -> Secret | None:
    """Find `user:password@tcp(host:3306)/app`."""
    before = scan.before(place, 200)
    found = _DSN.search(before)
    if found is None or is_placeholder(found["secret"]):
        return None
    start = place - len(before)
    return Secret(start + found.start("secret"), place, "url-password")


_URLS: Final = (
    AnchoredDetector(_HOOK_HOSTS, _webhook),
    AnchoredDetector(("://",), _user_info),
    AnchoredDetector(("@tcp(", "@unix(", "@udp("), _go_dsn),
    pattern_detector(
        "url-password",
        ("thin:", "sqlplus "),
        r"(?:thin:|sqlplus[ \t]{1,4}(?:-\w{1,4}[ \t]{1,4}){0,3})[\w$#.-]{1,64}+/"
        r"(?P<secret>[^\s@/\"']{1,128}+)@",
    ),
    pattern_detector(
        "url-parameter",
        tuple(f"{sign}{name}=" for sign in "?&" for name in _PARAMETERS),
        rf"[?&](?:{'|'.join(_PARAMETERS)})=(?P<secret>[^&\s\"'<>`]{{16,}}+)",
        more=r"[^&\s\"'<>`]",
    ),
)

# Headers

_SCHEMES: Final = (
    r"bearer|basic|digest|token|api-?key|negotiate|ntlm|hawk|oauth|sharedkey(?:lite)?|dpop|mac|bot"
    r"|genie-?key|splunk|signature|key|jwt|aws4[\w-]{1,20}|google\w{1,20}"
)
_CLOSE: Final = r"[\"'\]]{0,3}+"
_PARAMETER: Final = r"[\w-]{1,40}+=(?:\"[^\"\n\\]{0,600}+\"|[^\s,;\"'`\\]{1,1024}+)"
_AUTHORIZATION: Final = (
    rf"authorization{_CLOSE}[ \t]{{0,4}}+[:=,][ \t]{{0,4}}+[\"'`]?"
    rf"(?P<secret>(?:(?P<scheme>{_SCHEMES})[ \t]+"
    r"|(?P<other>[a-z][\w-]{1,30})[ \t]+(?=[^\s=]{20}))?+"
    rf"(?P<first>{_PARAMETER}(?:[,;][ \t]{{0,4}}+{_PARAMETER}){{0,20}}+|[^\s\"'`\\,;]{{1,1024}}+))"
)


def _is_authorization(match: re.Match[str]) -> bool:
    value = match["first"]
    if is_placeholder(value) or value.startswith(("<", "[")):
        return False
    return bool(match["scheme"] or match["other"]) or is_unlike_a_word(value) or len(value) >= 20


def _is_credential(match: re.Match[str]) -> bool:
    value = match["secret"]
    chancy = any(c.isdigit() or c in "=+/" for c in value) or len(value) >= 32
    return chancy or not (value.islower() or value.istitle())


_HEADERS: Final = (
    pattern_detector(
        "authorization",
        ("authorization",),
        _AUTHORIZATION,
        _is_authorization,
        window=2048,
        more=r"[^\s\"'`\\,;]",
    ),
    pattern_detector(
        "authorization",
        ("bearer", "basic"),
        r"(?:bearer|basic)[ \t]{1,8}+(?P<secret>[\w.~+/-]{8,}+={0,2})",
        _is_credential,
        more=r"[\w.~+/=-]",
    ),
    pattern_detector(
        "cookie",
        ("cookie",),
        rf"cookie{_CLOSE}[ \t]{{0,4}}+:[ \t]{{0,4}}+[\"'`]?"
        r"(?P<secret>[^\s\"'`\\=]{1,128}+=[^\r\n\"'`\\]*+)",
        more=r"[^\r\n\"'`\\]",
    ),
)  # fmt: skip

# Files

_NETRC_MORE: Final = r"(?:\s{1,40}+(?:login|account|user)[ \t]{1,8}+\S{1,128}+){0,3}"
_NETRC: Final = r"\s{1,40}+password[ \t]{1,8}+(?P<secret>[^\s\"']{1,256}+)"
_NETRC_END: Final = r"(?=[ \t│┃║]*(?:\s|\Z|[\"')]))"


def _is_base64_login(match: re.Match[str]) -> bool:
    """Return whether this is base64 of `user:password`, or a long random string."""
    value = match["secret"]
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return len(value) >= 20 and has_letters_and_digits(value)
    return (b":" in decoded and decoded.isascii()) or (
        len(value) >= 20 and has_letters_and_digits(value)
    )


class _PgPassDetector:
    """The lines of a `.pgpass`: `host:port:database:user:password`."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the passwords, in order."""
        for found in scan.everywhere(_PGPASS):
            if not found["database"].isdigit() and not found["secret"].startswith(MARK):
                yield Secret(*found.span("secret"), "pgpass")


_PGPASS: Final = re.compile(
    r"(?<![^\s\"'│┃║|(=])[\w.*-]{1,100}+:(?:\d{4,5}|\*):(?P<database>[^\s:\"'\\]{1,64}+):[^\s:\"'\\]{1,64}+:"
    r"(?P<secret>[^\s\"')]{1,256}+)"
)

_FILES: Final = (
    pattern_detector(
        "netrc",
        ("machine", "default"),
        rf"(?:machine[ \t]{{1,8}}+\S{{1,253}}+|default){_NETRC_MORE}{_NETRC}{_NETRC_END}",
        lambda m: (
            not is_placeholder(m["secret"]) and ("default" not in m[0][:7] or "login" in m[0])
        ),
        window=1024,
    ),
    pattern_detector(
        "netrc",
        ("login",),
        rf"login[ \t]{{1,8}}+\S{{1,128}}+(?:\s{{1,40}}+account[ \t]+\S{{1,128}}+)?"
        rf"(?=[ \t]*\n){_NETRC}{_NETRC_END}",
        lambda m: not is_placeholder(m["secret"]),
    ),
    _PgPassDetector(),
    pattern_detector(
        "docker-auth",
        ('auth"', "auth'", "auth\\"),
        r"(?<![\w-])auth[\"'][ \t]{0,4}+[:=]\s{0,8}+[\"'](?P<secret>[\w+/-]{8,}+={0,2})",
        _is_base64_login,
        window=2048,
        more=r"[\w+/=-]",
    ),
    pattern_detector(
        "sql-password",
        ("identified ",),
        r"identified[ \t]+(?:with[ \t]+\S{1,60}[ \t]+)?(?:by|as)[ \t]+(?:password[ \t]+)?"
        r"[\"'](?P<secret>[^\"'\n]{1,256}+)",
        lambda m: not is_placeholder(m["secret"]),
    ),
    pattern_detector(
        "jwk",
        ('"d"', '"k"', '"p"', '"q"', '"dp"', '"dq"', '"qi"', '\\"d\\', '\\"k\\'),
        r"\"(?:d|k|p|q|dp|dq|qi)\"[ \t]{0,4}+:[ \t]{0,4}+\"(?P<secret>[\w-]{32,}+)",
        lambda m: has_letters_and_digits(m["secret"]),
        more=r"[\w-]",
    ),
    pattern_detector(
        "wifi-password",
        ("psk=",),
        r"psk=[\"']?(?P<secret>[^\"'\s]{8,64}+)",
        lambda m: looks_like_a_password(m["secret"]),
    ),
)

DETECTORS: Final = (*_URLS, *_HEADERS, *_FILES)
"""The detectors of this module, in the order in which they run."""
