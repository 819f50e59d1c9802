"""Secrets whose names are separate from them: in XML, and in pairs of a name and a value.

`<token>…</token>`, `{"name": "API_KEY", "value": "…"}`, `define('DB_PASSWORD', '…')`.
"""

import re
from collections.abc import Iterator
from typing import Final

from outrider.machine.redaction.scan import AnchoredDetector, Scan, Secret
from outrider.machine.redaction.secret_names import is_secret_name
from outrider.machine.redaction.values import (
    QUOTE,
    is_placeholder,
    looks_like_a_password,
    secret_at,
)

KIND: Final = "named-secret"

_TAG: Final = re.compile(
    r"<(?P<tag>[\w:.-]{1,60}+)(?P<attributes>(?:\s[^<>]{0,200}+)?)>|&lt;(?P<escaped>[\w:.-]{1,60}+)&gt;"
)
_LABEL_ATTRIBUTE: Final = re.compile(r"(?:name|key)\s*=\s*[\"']([\w.$:-]{1,80})", re.IGNORECASE)
_PLIST: Final = re.compile(
    r"<key>(?P<label>[\w.$: -]{1,80}+)</key>\s{0,40}+<(?:string|data)>", re.IGNORECASE
)
_CDATA: Final = re.compile(r"\s{0,40}+<!\[CDATA\[")
_IN_CDATA: Final = re.compile(r"(?:(?!\]\]>)[\s\S])*+")
_IN_ELEMENT: Final = re.compile(r"(?:(?!&lt;)[^<])*+")
_MAX_TEXT: Final = 4096


def _element(scan: Scan, place: int) -> Secret | None:
    """Find `<token>…</token>`, and the value after `<key>token</key>`."""
    listed = scan.match(_PLIST, place, 160) if scan.low.startswith("<key>", place) else None
    if listed is not None:
        return _text(scan, listed.end()) if is_secret_name(listed["label"]) else None
    tag = scan.match(_TAG, place, 280)
    if tag is None or (tag["attributes"] or "").endswith("/"):
        return None
    name = tag["tag"] or tag["escaped"]
    label = _LABEL_ATTRIBUTE.search(tag["attributes"] or "")
    if not is_secret_name(name.rpartition(":")[2]) and not (label and is_secret_name(label[1])):
        return None
    # Not up to the next tag: CDATA may contain `<`.
    cdata = scan.match(_CDATA, tag.end(), 160)
    if cdata is not None:
        return Secret(cdata.end(), scan.span(_IN_CDATA, cdata.end(), _MAX_TEXT), KIND)
    return _text(scan, tag.end())


def _text(scan: Scan, start: int) -> Secret | None:
    """Return the text of an element that is closed, or cut at the end of the text."""
    end = scan.span(_IN_ELEMENT, start, _MAX_TEXT)
    secret = _strip(scan, start, end)
    value = scan.text[secret.start : secret.end]
    follows = scan.text[end : end + 5]
    whole = follows.startswith(("</", "&lt;/")) or (not follows and looks_like_a_password(value))
    return None if is_placeholder(value) or not whole else secret


def _strip(scan: Scan, start: int, end: int) -> Secret:
    """Return a secret without surrounding white space."""
    text = scan.text[start:end]
    start += len(text) - len(text.lstrip())
    return Secret(start, start + len(text.strip()), KIND)


_LABEL: Final = re.compile(
    r"(?:name|key|header|type)[\"']?[ \t]{0,4}+[:=][ \t]{0,4}+[\"']?"
    r"(?P<label>[\w$./-]{1,80}+)",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(
    rf"(?:(?!\bname\b)[^{{}}<>]){{0,120}}?(?<![a-z])(?:parameter)?value[\"']?\s{{0,4}}[:=]\s{{0,8}}"
    rf"(?P<quote>{QUOTE})?",
    re.IGNORECASE,
)


def _pair(scan: Scan, place: int) -> Secret | None:
    """Find `{"name": "API_KEY", "value": "…"}`, and the same in YAML, XML and options."""
    label = scan.match(_LABEL, place, 120)
    if label is None or not is_secret_name(label["label"]):
        return None
    value = scan.match(_VALUE, label.end(), 160)
    if value is None:
        return None
    return secret_at(scan, value.end(), value["quote"])


_LISTED: Final = re.compile(
    r"(?P<call>define\([ \t]{0,4}+)?[\"'](?P<label>[\w-]{2,60}+)[\"'][ \t]{0,4}+,[ \t]{0,4}+"
    r"(?P<quote>[\"'])",
    re.IGNORECASE,
)


class _Lists:
    """A name and its value beside it: `["X-Auth-Token", "…"]`, `define('DB_PASSWORD', '…')`.

    Names in a list without a hyphen are not those of headers, but words that are listed.
    """

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the secrets, in order."""
        position = 0
        for pair in scan.everywhere(_LISTED):
            is_name = (pair["call"] or "-" in pair["label"]) and is_secret_name(pair["label"])
            # A value may look like the next name of the list.
            if pair.start() < position or not is_name:
                continue
            secret = secret_at(scan, pair.end(), pair["quote"])
            if secret is not None:
                yield secret
                position = secret.end


DETECTORS: Final = (
    AnchoredDetector(("<", "&lt;"), _element),
    AnchoredDetector(("name", "key", "header", "type"), _pair),
    _Lists(),
)
