"""Secrets of every kind, and what only looks like one: `corpus.toml`, and what takes code to make.

The secrets are put together when a test runs, out of chance and of beginnings that are cut in
two: nothing in these files has the form of one, for those who look for leaks in a repository.
"""

import base64
import json
import random
import re
import string
import tomllib
from pathlib import Path
from typing import NamedTuple

from outrider.contract.ids import Prefix, derived_id

_TABLES = tomllib.loads(Path(__file__).with_name("corpus.toml").read_text())
_LETTERS = string.ascii_letters + string.digits
_ALPHABETS = {
    "some": _LETTERS,
    "hex": "0123456789abcdef",
    "base64": _LETTERS + "+/",
    "web": _LETTERS + "_-",
    "upper": string.ascii_uppercase + "234567",
}
_chance = random.Random(5)


def _some(length: int, alphabet: str = "some") -> str:
    """Return some characters, at least one of them a digit and one a letter."""
    letters = _ALPHABETS[alphabet]
    middle = "".join(_chance.choice(letters) for _ in range(length - 2))
    return f"{_chance.choice([c for c in letters if c.isalpha()])}{middle}7"


def _filled(template: str) -> str:
    """Return a text of `corpus.toml` with its placeholders replaced."""

    def value(match: re.Match[str]) -> str:
        match match[1].split():
            case ["word" | "tail" as name]:
                begin = "hunter" if name == "word" else ""
                return begin + "".join(_chance.choices(string.ascii_lowercase, k=4)) + "7"
            case ["code", groups]:
                letters = "BCDFGHJKLMNPQRSTVWXZ23456789"
                made = ["".join(_chance.choices(letters, k=4)) for _ in range(int(groups))]
                return "-".join(["B" + made[0][1:], *made[1:]])
            case [alphabet, length]:
                return _some(int(length), alphabet)
        return match[0]

    return re.sub(r"<((?:some|hex|base64|web|upper|code) \d+|word|tail)>", value, template).replace(
        "¦", ""
    )


class Secret(NamedTuple):
    """A secret within a text. `hidden` must be gone; `text` is where it stands."""

    kind: str
    text: str
    hidden: str


def _id(prefix: Prefix) -> str:
    """Return an id as this program makes them, the same in every process that runs the tests."""
    return derived_id(prefix, 1_795_000_000_000, prefix)


def _jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{_some(43, 'web')}"


def _pem(label: str, lines: int = 12) -> tuple[str, str]:
    """Return a private key with its secret part."""
    body = "\n".join(_some(64, "base64") for _ in range(lines))
    dashes = "-" * 5
    return f"{dashes}BEGIN {label}{dashes}\n{body}\n{dashes}END {label}{dashes}", body


def secrets() -> list[Secret]:
    """Return the corpus."""
    bare = [(kind, _filled(text)) for kind, texts in _TABLES["bare"].items() for text in texts]
    placed = [
        (kind, _filled(text), _filled(secret))
        for kind, pairs in _TABLES["placed"].items()
        for text, secret in pairs
    ]
    return [
        *(Secret(kind, token, token) for kind, token in [*bare, *_jwts()]),
        *(Secret(kind, text.replace("{}", secret), secret) for kind, text, secret in placed),
        *_encoded(),
        *_blocks(),
        *_splits(),
    ]


def _jwts() -> list[tuple[str, str]]:
    encrypted = ".".join([_jwt().split(".")[0], *(_some(n, "web") for n in (40, 16, 60, 22))])
    whole = [_jwt(sub="1", exp=1), _jwt(email="ada@example.org"), _jwt(scope="x" * 900)]
    return [("jwt", token) for token in [*whole, _jwt()[:-20], encrypted]]


def _encoded() -> list[Secret]:
    """Return secrets in places whose value takes more than a random text."""
    begin = b"-----BEGIN RSA PRIV" + b"ATE KEY-----\n"
    key = base64.b64encode(begin + _some(90, "base64").encode()).decode()
    token = _jwt(sub="2")
    return [
        Secret("jwt", f"session-{token}", token),
        Secret("file", f"client-key-data: {key}", key),
    ]


def _blocks() -> list[Secret]:
    """Return keys that take several lines."""
    private = "PRIVATE " + "KEY"
    keys = [
        _pem(label)
        for label in (
            private,
            f"RSA {private}",
            f"EC {private}",
            f"OPENSSH {private}",
            f"ENCRYPTED {private}",
            f"PGP {private} BLOCK",
        )
    ]
    whole, body = keys[0]
    cut_short, headless = whole.split("\n"), whole.split("\n")
    quoted, quoted_body = _pem(f"DSA {private}")
    indented, indented_body = _pem(private, 4)
    openvpn, hexadecimal = _pem("OpenVPN Static key V1", 1)
    ssh_body = "\n".join(_some(64, "base64") for _ in range(6))
    ssh_label, dashes = f"SSH2 ENCRYPTED {private}", "-" * 4
    ssh = f"{dashes} BEGIN {ssh_label} {dashes}\n{ssh_body}\n{dashes} END {ssh_label} {dashes}"
    putty = "\n".join(_some(64, "base64") for _ in range(3))
    return [
        *[Secret("private-key", text, secret) for text, secret in keys],
        Secret("private-key", "\n".join(cut_short[:-4]), cut_short[3]),
        Secret("private-key", "\n".join(headless[5:]), headless[7]),
        Secret("private-key", whole.replace("\n", "\\n"), body.replace("\n", "\\n")),
        Secret("private-key", quoted.replace("\n", "\n> "), quoted_body.split("\n")[5]),
        Secret("private-key", indented.replace("\n", "\n    "), indented_body.split("\n")[2]),
        Secret("private-key", openvpn, hexadecimal),
        Secret("private-key", ssh, ssh_body),
        Secret("private-key", f"Private-Lines: 3\n{putty}\nPrivate-MAC: x", putty),
    ]


def _splits() -> list[Secret]:
    """Return secrets with control sequences in them, as a terminal writes them."""
    token, named, url = "gh" + "p_" + _some(36), _filled("colour<tail>"), _filled("colour<tail>")
    gitlab, anthropic, slack = (
        "glp" + "at-" + _some(20),
        "sk-a" + "nt-api03-" + _some(93),
        _some(40),
    )
    bold, spaced, linked = "gh" + "o_" + _some(36), "np" + "m_" + _some(36), "hv" + "s." + _some(90)
    moved, literal = "gh" + "s_" + _some(36), "gh" + "u_" + _some(36)
    return [
        Secret("split", f"\x1b[32m{token[:9]}\x1b[0m\x1b[1m{token[9:]}\x1b[0m", token),
        Secret(
            "split", "".join(f"\x1b[38;5;{i}m{c}" for i, c in enumerate(gitlab)) + "\x1b[m", gitlab
        ),
        Secret("split", f"pass\x1b[1mword\x1b[0m=\x1b[33m{named}\x1b[0m", named),
        Secret("split", f"postgres://ada:\x1b[31m{url[:4]}\x1b[0m{url[4:]}@db", url),
        Secret("split", f"{anthropic[:20]}\x1b[K\x1b[?25l{anthropic[20:]}", anthropic),
        Secret("split", f"xo\x1b(Bxb-{slack[:10]}\x1b]0;title\x07{slack[10:]}", slack),
        Secret("split", "".join(f"{c}\b{c}" for c in bold), bold),
        Secret("split", "\u200b".join(spaced), spaced),
        Secret("split", f"\x1b]8;;https://x\x1b\\{linked[:30]}\x1b]8;;\x1b\\{linked[30:]}", linked),
        Secret("split", f"{moved[:12]}\x1b[1;13H{moved[12:]}", moved),
        Secret("split", f"{literal[:12]}\\u001b[31m{literal[12:]}", literal),
    ]


def innocents() -> list[str]:
    """Return what must stay as it is."""
    session, machine = _id("session"), _id("machine")
    return [
        *_TABLES["innocent"]["texts"],
        "sha512-" + base64.b64encode(bytes(range(64))).decode(),  # integrity
        "data:image/png;base64," + base64.b64encode(bytes(range(200))).decode(),
        *(session, machine, _id("msg"), _id("key")),
        f"{machine}:session:{session}",
        f"{machine}:cli:claude-code",
    ]


def unfinished() -> list[str]:
    """Return lines whose secret is missing: what follows on another line is none."""
    return list(_TABLES["innocent"]["unfinished"])


def hostile() -> list[str]:
    """Return what a screen may be full of, so that a search for secrets takes long."""
    return [piece.replace("¦", "") for piece in _TABLES["hostile"]["pieces"]]
