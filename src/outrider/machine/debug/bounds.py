"""Copies JSON values within size limits, redacted; the newest of what is too much is kept.

Secrets are redacted before a text is cut, and a text is redacted with a margin beyond the cut:
otherwise half of a secret could remain, which no detector recognizes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from outrider.machine.redaction.redactor import Redactor
from outrider.machine.redaction.secret_names import is_secret_name

MARGIN: Final = 4096
"""Characters before the kept part of a text that are redacted with it and then dropped."""

_MAX_DEPTH: Final = 32
_MAX_KEY: Final = 256
_MAX_NOTES: Final = 6
"""Notes about what was cut, for one part of a bundle."""
_MIN_SHARE: Final = 64
"""Bytes that every item may use, however small its share is."""

_NONE: Final = object()

Hide = Literal["no", "texts", "all"]
"""Which of a value's contents are secret because of its name; `all` includes numbers."""

_LABELS: Final = ("name", "key", "header")
"""Keys for the name in a name-and-value pair, as in a list of headers."""


def size(value: Any) -> int:
    """Return the size of a value in bytes of JSON."""
    return len(msgspec.json.encode(value))


def tail(text: str, room: int) -> tuple[str, int]:
    """Return the end of a text in at most `room` bytes of JSON, and the characters cut."""
    result = text[-room:] if room > 0 else ""
    while result and (over := size(result) - room) > 0:
        result = result[max(1, over // 6) :]  # a character has at most 6 bytes, as in \u0007
    return result, len(text) - len(result)


class Bounds:
    """Redacts and limits the parts of one bundle; `omitted` lists what was cut."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.omitted: list[str] = []
        self._notes = 0

    def fit(self, value: Any, room: int, name: str) -> Any:
        """Return a copy of a JSON value in `room` bytes, None if nothing of it fits.

        The last items of lists and the end of texts are kept. An item may use half of the
        remaining space, so that one huge item leaves space for the others.
        """
        self._notes = 0
        result, _ = self._fit(value, room, name, hide="no", depth=0)
        if self._notes > _MAX_NOTES:
            self.omitted.append(f"{name}: and more in {self._notes - _MAX_NOTES} places")
        return None if result is _NONE else result

    def _fit(self, value: Any, room: int, path: str, *, hide: Hide, depth: int) -> tuple[Any, int]:
        """Return what is kept of a value, and the bytes that it uses."""
        result: Any
        if isinstance(value, str):
            result, cost = self._text(value, room, path, hide=hide)
        elif isinstance(value, Mapping | list | tuple) and depth >= _MAX_DEPTH:
            self._note(f"{path}: what is nested deeper")
            return _NONE, 0
        elif isinstance(value, Mapping):
            result, cost = self._mapping(value, room, path, hide=hide, depth=depth + 1)
        elif isinstance(value, list | tuple):
            result, cost = self._list(value, room, path, hide=hide, depth=depth + 1)
        elif hide == "all" and isinstance(value, int | float) and not isinstance(value, bool):
            result, cost = self._text(str(value), room, path, hide="all")
        else:
            result, cost = value, size(value)
        return (result, cost) if cost <= room else (_NONE, 0)

    def _text(self, text: str, room: int, path: str, *, hide: Hide) -> tuple[str, int]:
        if hide != "no" and text:
            redacted = self._redactor.hide()
            return redacted, size(redacted)
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # JSON has no lone surrogates
        window = text[-(room + MARGIN) :] if len(text) > room else text
        result = self._redactor.text(window)
        if len(window) < len(text):
            result = result[MARGIN:]
        work = min(len(window), room)
        cost = size(result)
        if len(window) < len(text) or cost > room:
            result, _ = tail(result, room)
            cost = size(result)
            self._note(f"{path}: the beginning of a text of {len(text)} characters")
        return result, max(cost, work)

    def _list(
        self, values: Sequence[Any], room: int, path: str, *, hide: Hide, depth: int
    ) -> tuple[list[Any], int]:
        result: list[Any] = []
        remaining = room - 2
        for index in range(len(values) - 1, -1, -1):
            named = len(values) == 2 and index == 1 and _is_label(values[0], values[1])
            item, cost = self._fit(
                values[index],
                _share(remaining - 1, last=index == 0),
                f"{path}[{index}]",
                hide="all" if named else hide,
                depth=depth,
            )
            if item is _NONE:
                self._note(f"{path}: the first {index + 1} of {len(values)}")
                break
            result.append(item)
            remaining -= cost + 1
        return result[::-1], room - remaining

    def _mapping(
        self, values: Mapping[Any, Any], room: int, path: str, *, hide: Hide, depth: int
    ) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        remaining, dropped = room - 2, 0
        labelled = any(_is_label(values.get(label), values.get("value")) for label in _LABELS)
        for number, (name, value) in enumerate(values.items(), start=1):
            key = self._key(str(name), result)
            available = remaining - size(key) - 2
            item, cost = (_NONE, 0) if available <= 0 else self._fit(
                value,
                _share(available, last=number == len(values)),
                f"{path}.{key}",
                hide="all" if labelled and name == "value" else _what_to_hide(str(name), hide),
                depth=depth,
            )  # fmt: skip
            if item is _NONE:
                dropped += 1
                if available <= 0:
                    dropped += len(values) - number
                    break
                continue
            result[key] = item
            remaining = available - cost
        if dropped:
            self._note(f"{path}: {dropped} of {len(values)} fields")
        return result, room - remaining

    def _key(self, name: str, existing: Mapping[str, Any]) -> str:
        """Return a redacted key that is not in `existing`."""
        key = self._text(name, _MAX_KEY, "a key", hide="no")[0]
        unique, number = key, 2
        while unique in existing:
            unique, number = f"{key} ({number})", number + 1
        return unique

    def _note(self, note: str) -> None:
        self._notes += 1
        if self._notes <= _MAX_NOTES:
            self.omitted.append(tail(note, 160)[0])


def _share(remaining: int, *, last: bool) -> int:
    return remaining if last else min(remaining, max(remaining // 2, _MIN_SHARE))


def _what_to_hide(name: str, above: Hide) -> Hide:
    """Return what to hide of a value with this name."""
    if above == "all" or is_secret_name(name, of_text=False):
        return "all"
    return "texts" if above == "texts" or is_secret_name(name) else "no"


def _is_label(name: Any, value: Any) -> bool:
    """Return whether `name` says that `value` beside it is a secret."""
    return isinstance(name, str) and isinstance(value, str) and is_secret_name(name)
