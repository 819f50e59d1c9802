"""Secrets that follow a name: `password=…`, `"apiKey": …`, `set -x API_KEY …`.

`markup` finds those whose names are separate, as in `<token>…</token>`.
"""

import re
from typing import Final

from outrider.machine.redaction.scan import MARK, AnchoredDetector, Scan, Secret
from outrider.machine.redaction.secret_names import describes_a_secret
from outrider.machine.redaction.tables import TABLES
from outrider.machine.redaction.values import (
    MAX_JUDGED,
    QUOTE,
    has_letters_and_digits,
    is_code,
    is_placeholder,
    is_unlike_a_word,
    looks_like_a_password,
    rest_end,
    value_end,
)

KIND: Final = "named-secret"

_NAMES: Final = (
    *TABLES["names"]["passwords"],
    *TABLES["names"]["others"].split(),
    *(f"{word}{gap}key" for word in TABLES["names"]["keys"].split() for gap in ("", *"_- ")),
    *(f"{word}{gap}code" for word in TABLES["names"]["codes"].split() for gap in ("", *"_- ")),
)
"""Parts of the names of secrets."""

_ANY: Final = "|".join(
    [
        *(re.escape(name) for name in sorted(_NAMES, key=len, reverse=True)),
        "[_-]pass(?![a-z])",
        "_auth(?![a-z])",
        r"(?<![\w-])pass(?=[\"']?[ \t]?[=:])",
    ]
)
_PASSWORD: Final = re.compile("|".join((*TABLES["names"]["passwords"], "[_-]pass")), re.IGNORECASE)
_WEAK: Final = frozenset({"token", "cookie", "secret", "credential", "otp", "jwt", "psk", "pass"})
"""Names that sentences have before a colon too, as in `invalid token: expected a name`."""

_IN_WORDS: Final = frozenset({"otp", "jwt", "pwd", "psk"})
_WITHOUT_SPACES: Final = ("token", "key", "code", "jwt", "otp")
"""Names whose values are never sentences."""

_NUMBER: Final = re.compile(r"[\d.,]+[kKM%]?")

_HEAD: Final = re.compile(
    rf"(?P<name>{_ANY})(?P<about>[\w-]{{0,40}}+)"
    r"[\"'`\]]{0,3}+"
    # `token: string = "…"`
    rf"(?:(?P<typed>[?!]?:[ \t]{{0,4}}+[&*\w.<>\[\]|, ]{{1,40}}?[ \t]=[ \t]{{1,4}}+(?={QUOTE}))"
    r"|[ \t]{0,8}+(?P<sign>:=|=>|\?=|={1,3}|!==?|::?|\uff1a|%3d)[ \t]{0,8}+"
    r"|(?P<prose>[ \t]{1,4}(?:is|was|to)[ \t]{1,4}+)"
    r"|(?P<gap>[ \t]{1,8}+))"
    r"(?:(?:!!?[\w./-]{0,40}|&\w{1,40})[ \t]{1,4}+)?+"  # tags and anchors of YAML
    rf"(?P<quote>{QUOTE})?",
    re.IGNORECASE,
)
_BLOCK: Final = re.compile(
    r"[ \t]{0,8}+"
    r"(?P<sign>(?:!!?[\w./-]{0,40}[ \t]{0,4}+)?[|>][-+0-9]{0,3}[ \t]{0,8}+(?:#[^\n]{0,80}+)?)?"
    r"[ \t]{0,8}+\n"
)
_EDGE: Final = re.compile(r"[ \t]*[│┃║]|")
_INDENT: Final = re.compile(r"[ \t]*(?:- +)*")
_IN_WORD: Final = r"[^\s=:|,;(){}\[\]\"'`│┃║]"
_WORDS: Final = re.compile(rf"{_IN_WORD}+(?: {_IN_WORD}+){{1,60}}(?=[ \t│┃║]*(?:\n|\\|[\"'`)]|\Z))")
_SETTER: Final = re.compile(
    r"(?:^|[\s;&|(\"'`])(?:set|setenv|setx|ENV|env|configure set|config set|config)"
    r"(?:[ \t]+-[\w-]+)*[ \t]+[\w.:/$-]*\Z"
)
_QUESTION: Final = re.compile(
    r"[ \t](?:for|of)[ \t][^\n]{1,160}?:[ \t]{0,4}"
    r"(?P<secret>[^\s\"'`]{1,256}+)(?=[ \t│┃║]*(?:\s|\Z|[\"')]))"
)
_MAX_BLOCK: Final = 16 * 1024


def _named(scan: Scan, place: int) -> Secret | None:
    head = scan.match(_HEAD, place, 256)
    if head is None or _is_other_name(scan, head):
        return None
    if head["prose"]:
        return _in_prose(scan, head)
    if head["gap"]:
        return _after_a_space(scan, head)
    if not head["quote"] and not head["typed"] and "%" not in head["sign"]:
        block = scan.match(_BLOCK, head.end("sign")) if head["sign"] in (":", "\uff1a") else None
        if block is not None:
            return _block(scan, head, block)
    start, quote = head.end(), head["quote"]
    if not quote and (end := _sentence_end(scan, head)):
        return Secret(start, end, KIND)
    end = value_end(scan, start, quote)
    if _is_no_secret(scan.text[start : min(end, start + MAX_JUDGED + 1)], head):
        return None
    return Secret(start, rest_end(scan, end, quote), KIND)


def _is_other_name(scan: Scan, head: re.Match[str]) -> bool:
    """Return whether the name is part of a word (`tokenizer`) or describes a secret."""
    name, about = head["name"], head["about"]
    if about and describes_a_secret(about):
        return True
    goes_on = about[:1].isalpha() and about[0].islower() == name[-1].islower()
    if goes_on and name[-1].isascii() and not re.match(r"[sS](?![a-zA-Z])", about):
        return True
    return name.lower() in _IN_WORDS and scan.text[head.start() - 1 : head.start()].isalpha()


def _is_no_secret(value: str, head: re.Match[str]) -> bool:
    """Return whether the value after a name is not a secret. `value` may be cut."""
    name, sign, quote = head["name"].lower(), head["sign"] or "", head["quote"]
    word = value.rstrip(",;:)]}")
    if is_placeholder(value):
        return True
    if _NUMBER.fullmatch(word) and (
        head["about"][:1] in ("s", "S") or name == "pass" or (name == "token" and len(value) < 6)
    ):
        return True  # a count
    if head["name"] == "PASS" and sign == ":":
        return True  # what a test run says
    if name == "pwd" and value.startswith(("/", "~")):
        return True  # the shell's working directory
    if name.endswith(_WITHOUT_SPACES) and _is_sentence(value):
        return True
    if quote:
        return False
    if sign[:2] in ("==", "!="):
        return True  # a comparison with another name, or a version as in `name==1.0`
    if is_code(value, head["name"] + head["about"]):
        return True
    if sign == ":" and head["about"] in ("s", "S") and not is_unlike_a_word(value):
        return True  # a heading
    return sign[:1] == ":" and sign != ":=" and name in _WEAK and not is_unlike_a_word(value)


def _is_sentence(value: str) -> bool:
    words = value.split()
    return len(words) > 1 and not any(
        len(word) >= 16 and has_letters_and_digits(word) for word in words
    )


def _sentence_end(scan: Scan, head: re.Match[str]) -> int | None:
    """Return the end of a password of several words, or None."""
    if head["sign"] not in (":", "=") or not _PASSWORD.fullmatch(head["name"]):
        return None
    words = scan.match(_WORDS, head.end())
    if words is None or MARK in words[0]:
        return None
    first = words[0].split(" ")[0]
    return None if is_placeholder(first) or is_code(first, head["name"]) else words.end()


def _in_prose(scan: Scan, head: re.Match[str]) -> Secret | None:
    """Find `the password is …`."""
    return _secret_if_random(scan, head) if not head["about"] else None


def _after_a_space(scan: Scan, head: re.Match[str]) -> Secret | None:
    """Find `set -x TOKEN …`, `PASSWORD '…'` and `password for ada: …`."""
    if _SETTER.search(scan.before(head.start(), 80)):
        start, quote = head.end(), head["quote"]
        end = value_end(scan, start, quote, MAX_JUDGED + 1)
        value = scan.text[start:end]
        if is_placeholder(value) or value.startswith("-") or (not quote and is_code(value, "")):
            return None
        return Secret(start, rest_end(scan, end, quote), KIND)
    if not _PASSWORD.fullmatch(head["name"]) or head["about"]:
        return None
    if head["quote"]:
        return _secret_if_random(scan, head, shouted=head["name"].isupper())
    question = scan.match(_QUESTION, head.end("name"))
    if (
        question is None
        or is_placeholder(question["secret"])
        or not is_unlike_a_word(question["secret"])
    ):
        return None
    return Secret(*question.span("secret"), KIND)


def _secret_if_random(scan: Scan, head: re.Match[str], *, shouted: bool = False) -> Secret | None:
    start, quote = head.end(), head["quote"]
    end = value_end(scan, start, quote, MAX_JUDGED + 1)
    value = scan.text[start:end]
    if (
        len(value) > MAX_JUDGED
        or is_placeholder(value)
        or (not looks_like_a_password(value) and not shouted)
    ):
        return None
    return Secret(start, end, KIND)


def _block(scan: Scan, head: re.Match[str], block: re.Match[str]) -> Secret | None:
    """Return the value on the lines after a YAML key: a block, or a word on the next line."""
    line = scan.before(head.start(), 200)
    least = _indent(line)[1]
    start = end = None
    place, last = block.end(), block.end() + _MAX_BLOCK
    while place < min(last, len(scan.text)):
        stop = scan.text.find("\n", place, last)
        stop = min(last, len(scan.text)) if stop < 0 else stop
        content = scan.text[place:stop]
        scan.examined += stop - place + 1
        begin, indent = _indent(content)
        if content[begin:].strip(" \t│┃║"):
            if indent <= least:
                break
            start = place + begin if start is None else start
            end = stop
            if not block["sign"]:
                break
        place = stop + 1
    if start is None or end is None or scan.text.startswith(MARK, start):
        return None
    if block["sign"]:
        return Secret(start, end, KIND)
    alone = not line.strip(" \t-\"'\\{│┃║")
    return _next_line(scan.text[start : start + MAX_JUDGED + 1].split("\n")[0], start, alone=alone)


_ALONE: Final = re.compile(
    rf"(?P<quote>{QUOTE})?(?P<secret>[^\s\"'`\\{{\[<#/:-][^\s\"'`\\]{{3,}})(?:[\"'].*|[ \t,│┃║]*)"
)


def _next_line(content: str, start: int, *, alone: bool) -> Secret | None:
    """Return the word on the line after a key without a value, if it may be a secret.

    `alone`: the key is alone on its line.
    """
    word = _ALONE.fullmatch(content)
    value = "" if word is None else word["secret"]
    if word is None or value.endswith(":") or is_placeholder(value) or is_code(value, ""):
        return None
    if not (
        is_unlike_a_word(value)
        if alone
        else looks_like_a_password(value) and has_letters_and_digits(value)
    ):
        return None
    return Secret(start + word.start("secret"), start + word.end("secret"), KIND)


def _indent(line: str) -> tuple[int, int]:
    """Return the start of a line's text and its indentation, without a box's border."""
    edge = _EDGE.match(line)
    begin = 0 if edge is None else edge.end()
    space = _INDENT.match(line, begin)
    end = begin if space is None else space.end()
    return end, end - begin


DETECTORS: Final = (AnchoredDetector((*_NAMES, "_pass", "-pass", "_auth", "pass"), _named),)
"""The detectors of this module, in the order in which they run."""
