"""Names whose values are secrets: `password`, `API_KEY`, `refreshToken`, `Set-Cookie` and so on."""

import re
from itertools import pairwise
from typing import Final

_NAME: Final = re.compile(r"[\w$.-]{1,80}(?: [\w$.-]{1,40}){0,2}")
"""The form of a name; sentences and paths are not names."""

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
"""Names whose texts are secrets, but whose numbers are counts."""

_ABOUT: Final = frozenset({
    "count", "counts", "limit", "limits", "usage", "length", "len", "name", "names", "type",
    "types", "policy", "prompt", "budget", "used", "window", "expires", "expiry", "ttl", "error",
    "url", "uri", "path", "paths", "file", "files", "id", "ids", "field", "fields", "manager",
    "required", "enabled", "hash", "version", "hint", "rule", "rules", "strength", "in", "at",
})  # fmt: skip


def describes_a_secret(name: str) -> bool:
    """Return whether a name describes a secret and does not hold it: `tokenCount`."""
    words = _WORD.findall(name[-120:])
    return bool(words) and words[-1].lower() in _ABOUT


def is_secret_name(name: str, *, of_text: bool = True) -> bool:
    """Return whether a value with this name is a secret.

    Without `of_text`, the value is a number: `tokens` may hold tokens, but also their count.
    """
    words = [word.lower() for word in _WORD.findall(name)] if _NAME.fullmatch(name) else []
    if not 0 < len(words) <= _MAX_WORDS or words[-1] in _ABOUT:
        return False
    if any(word in _SECRET for word in words):
        return True
    if of_text and words[-1] in _OF_TEXTS:
        return True
    return any(f"{a} {b}" in _SECRET_PAIRS for a, b in pairwise(words))
