"""Names whose values are secrets: `password`, `API_KEY`, `refreshToken`, `Set-Cookie` and so on."""

import re
from itertools import pairwise
from typing import Final

_NAME: Final = re.compile(r"[\w$.-]{1,80}(?: [\w$.-]{1,40}){0,2}")
"""What a name may look like; a sentence or a path is none."""

_MAX_WORDS: Final = 8
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SECRET: Final = frozenset({
    "password", "passwords", "passwd", "passphrase", "passcode", "pwd", "secret", "secrets",
    "credential", "credentials", "authorization", "cookie", "cookies", "bearer", "jwt", "otp",
    "totp", "apikey", "token", "authtoken", "accesstoken", "refreshtoken", "idtoken",
    "privatekey", "secretkey", "accesskey", "pgpassword", "passwort", "kennwort", "senha", "psk",
    "wachtwoord", "parola", "mnemonic", "phpsessid", "jsessionid", "seedphrase", "creds",
})  # fmt: skip
_SECRET_PAIRS: Final = frozenset({
    "api key", "access key", "private key", "secret key", "auth key", "account key",
    "encryption key", "signing key", "service key", "master key", "storage key", "db key",
    "database key", "session key", "shared key", "client key", "device code", "user code",
    "verification code", "enrolment code", "recovery code", "backup code", "connection string",
    "db pass", "database pass", "key pass", "app key", "consumer key", "subscription key",
    "preshared key", "deploy key", "seed phrase", "recovery phrase", "pin code", "client cert",
})  # fmt: skip
_OF_TEXTS: Final = frozenset({"tokens", "auth", "pass"})
"""Names whose texts are secrets, while their numbers count something."""

_ABOUT: Final = frozenset({
    "count", "counts", "limit", "limits", "usage", "length", "len", "name", "names", "type",
    "types", "policy", "prompt", "budget", "used", "window", "expires", "expiry", "ttl", "error",
    "url", "uri", "path", "paths", "file", "files", "id", "ids", "field", "fields", "manager",
    "required", "enabled", "hash", "version", "hint", "rule", "rules", "strength", "in", "at",
})  # fmt: skip


def is_about(name: str) -> bool:
    """Tell whether a name's end makes it the name of something about a secret: `…Count`."""
    words = _WORD.findall(name[-120:])
    return bool(words) and words[-1].lower() in _ABOUT


def is_secret_name(name: str, *, of_text: bool = True) -> bool:
    """Tell whether the value that has this name is a secret; a text, or `of_text` False, a number.

    `tokens` may be a list of them, but a number of tokens is none.
    """
    words = [word.lower() for word in _WORD.findall(name)] if _NAME.fullmatch(name) else []
    if not 0 < len(words) <= _MAX_WORDS or words[-1] in _ABOUT:
        return False
    if any(word in _SECRET for word in words):
        return True
    if of_text and words[-1] in _OF_TEXTS:
        return True
    return any(f"{a} {b}" in _SECRET_PAIRS for a, b in pairwise(words))
