"""The forms that secrets have in a text, each with the kind that its count is kept under.

Every expression is linear in the text's length, or bounded: what has been looked at is either
consumed or limited in length, whatever an agent has on its screen.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from outrider.daemon.debug.names import is_about

MARK: Final = "[redacted:"
"""What the place of a secret begins with."""


def mark(kind: str) -> str:
    """Return what stands in the place of a secret."""
    return f"{MARK}{kind}]"


@dataclass(frozen=True)
class Form:
    """One form. Of a match, the group `secret` is taken out, or all where there is none.

    Attributes:
        judge: returns for a match the kind of secret that it is; "" for the form's own, None
            for no secret.
        begins: what a match begins with, in lower case: looking for that first is many times
            faster. Without it, the pattern is looked for everywhere.
        needs: what a text with a match has somewhere, in lower case.
    """

    kind: str
    pattern: re.Pattern[str]
    judge: Callable[[re.Match[str]], str | None] = lambda _: ""
    begins: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


# Tokens that say by their beginning what they are.

_BEGINNINGS: Final = {
    "outrider-token": ("ork_", "omt_", "whsec_"),
    "anthropic-key": ("sk-ant-",),
    "openai-key": ("sk-", "sess-"),
    "github-token": ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    "gitlab-token": ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "gloas-", "glft-", "glsoat-",
                     "glagent-", "glimt-", "GR1348941"),
    "npm-token": ("npm_",),
    "pypi-token": ("pypi-",),
    "slack-token": ("xoxa-", "xoxb-", "xoxc-", "xoxd-", "xoxe-", "xoxe.", "xoxo-", "xoxp-",
                    "xoxr-", "xoxs-", "xapp-"),
    "stripe-key": ("sk_live_", "sk_test_", "rk_live_", "rk_test_"),
    "google-key": ("AIza", "ya29.", "GOCSPX-"),
    "aws-key": ("AKIA", "ASIA", "ABIA", "ACCA"),
    "cloud-token": ("dop_v1_", "doo_v1_", "dor_v1_", "hvs.", "hvb.", "dckr_pat_", "dapi",
                    "tskey-", "glsa_", "glc_", "sntrys_", "sntryu_", "pscale_", "sbp_", "fm2_",
                    "NRAK-", "shpat_", "shpss_", "shpca_", "shppa_", "lin_api_", "ntn_", "EAAC"),
    "model-key": ("hf_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "tgp_v1_", "fw_"),
    "age-key": ("AGE-SECRET-KEY-1",),
}  # fmt: skip
_KIND_OF: Final = {begin: kind for kind, begins in _BEGINNINGS.items() for begin in begins}
_ANY_BEGINNING: Final = tuple(_KIND_OF)
_DEVICE_CODE: Final = re.compile(r"[A-Za-z0-9]{43}")
_ENROLMENT_CODE: Final = re.compile(
    r"(?=.*[A-Z])[B-DF-HJ-NP-TV-XZ2-9]{4}(?:-[B-DF-HJ-NP-TV-XZ2-9]{4}){1,2}"
)
_MIN_TOKEN: Final = 20


def _token(match: re.Match[str]) -> str | None:
    run = match[0].rstrip(".")
    if run.startswith("eyJ"):
        return "jwt" if "." in run else None
    if run.startswith(_ANY_BEGINNING):
        if len(run) < _MIN_TOKEN or not _mixed(run):
            return None
        return next(kind for begin, kind in _KIND_OF.items() if run.startswith(begin))
    if len(run) < 16 and _ENROLMENT_CODE.fullmatch(run):
        return "enrolment-code"
    if _DEVICE_CODE.fullmatch(run) and _mixed(run) and not run.islower() and not run.isupper():
        return "device-code"
    return None


def _mixed(text: str) -> bool:
    """Tell whether a text has letters and digits, as chance has them and words do not."""
    return any(c.isdigit() for c in text) and any(c.isalpha() for c in text)


# Values that a name, a header or a place tells to be secret.

_PLAIN: Final = re.compile(
    r"(?:none|null|nil|true|false|undefined|str(?:ing)?|bytes|int|bool(?:ean)?|number|any"
    r"|optional|required|secretstr|os\.environ\S*|os\.getenv\S*|process\.env\S*|getpass\S*"
    r"|self\.\w+|settings\.\w+|config\.\w+|\$\{?\w.*|<.*|\{\{?.*|\*+|x{3,}|\.{3}|…|-|=|\(|\[)"
    r"[,;)\]}]*",
    re.IGNORECASE,
)
"""What stands in the place of a secret in code and instructions, and tells none."""

_WEAK: Final = frozenset({"token", "cookie", "secret", "credential", "otp", "jwt"})
_NUMBER: Final = re.compile(r"[\d.,]+[kKM%]?")


def _named(match: re.Match[str]) -> str | None:
    value = match["secret"]
    if not value.strip() or value.startswith(MARK) or _PLAIN.fullmatch(value.strip()):
        return None
    name, about = match["name"], match["about"]
    if _within_a_word(match) or (about and is_about(about)):
        return None
    counted = name.lower() == "token" and _NUMBER.fullmatch(value.rstrip(",;:)]}"))
    if counted and (about[:1] in ("s", "S") or len(value) < 6):
        return None
    if name.lower() == "pwd" and value.startswith(("/", "~")):
        return None  # the shell's working directory
    if not match["quote"] and "==" in match["sign"]:
        return None  # a comparison with another name, or a version as in `name==1.0`
    if not match["quote"] and ":" in match["sign"] and name.lower() in _WEAK and not _odd(value):
        return None  # a sentence, as in "invalid token: expected a name"
    return ""


def _within_a_word(match: re.Match[str]) -> bool:
    """Tell whether the name is only a part of a word, as in `tokenizer` or `footprint`."""
    name, about = match["name"], match["about"]
    goes_on = about[:1].isalpha() and about[0].islower() == name[-1].islower()
    if goes_on and not re.match(r"[sS](?![a-zA-Z])", about):
        return True
    before = match.string[match.start() - 1 : match.start()]
    return name.lower() in {"otp", "jwt", "pwd"} and before.isalpha()


def _odd(value: str) -> bool:
    """Tell whether a value looks unlike a word."""
    word = value.rstrip(".,;:!?")
    return not word.isalpha() or len(word) > 24


def _not_marked(match: re.Match[str]) -> str | None:
    value = match["secret"].strip()
    return None if value.startswith(MARK) and value.endswith("]") else ""


def _credential(match: re.Match[str]) -> str | None:
    value = match["secret"]
    chancy = any(c.isdigit() or c in "=+/" for c in value) or len(value) >= 32
    return "authorization" if chancy or not (value.islower() or value.istitle()) else None


_PEM_LABEL: Final = r"[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?"
_BOX: Final = r" \t|│┃║"

_BREAK: Final = rf"[{_BOX}]{{0,200}}\n[{_BOX}]{{0,200}}"
_RUN: Final = r"[A-Za-z0-9_\-.+/=]"
_LINE_END: Final = rf"(?=[{_BOX}]{{0,200}}(?:\n|$))"

_KEYS: Final = (
    "api", "access", "private", "secret", "auth", "account", "encryption", "signing", "service",
    "master", "storage", "db", "database", "shared", "session", "client",
)  # fmt: skip
_CODES: Final = ("device", "user", "verification", "recovery", "backup")
_GAPS: Final = ("", "_", "-", " ")
_NAMES: Final = (
    "passwd", "password", "passphrase", "passcode", "pwd", "secret", "credential", "token",
    "cookie", "jwt", "otp", "connectionstring", "connection_string", "connection-string",
    "contraseña",
    *(f"{word}{gap}key" for word in _KEYS for gap in _GAPS),
    *(f"{word}{gap}code" for word in _CODES for gap in _GAPS),
)  # fmt: skip
"""What a name has in it that holds a secret."""

_ANY_NAME: Final = "|".join(
    [*sorted(map(re.escape, _NAMES), key=len, reverse=True), "[_-]pass(?![a-z])", "_auth(?![a-z])"]
)

_PARAMETERS: Final = ("sig", "signature", "x-amz-signature", "x-goog-signature", "code", "key",
                      "auth", "sid")  # fmt: skip

OWN: Final[tuple[Form, ...]] = (
    Form(
        "private-key",
        re.compile(
            rf"-----BEGIN {_PEM_LABEL}-----"
            rf"(?:[^-]{{0,16384}}-----END {_PEM_LABEL}-----|[A-Za-z0-9+/=\s\\:,│┃║|-]*)"
        ),
        begins=("-----begin ",),
    ),
    Form("token", re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]{8,}"), _token),
    Form(
        "url-password",
        re.compile(r"://[^\s/?#\"'<>@:\[]{0,256}:(?P<secret>[^\s/\"'<>`]{1,512})@"),
        _not_marked,
        begins=("://",),
    ),
    Form(
        "url-password",  # with a slash in it, which of the web's URLs would take the paths
        re.compile(
            r"(?:sql|mongodb|\+srv|redis|rediss|amqps?)://[^\s/?#\"'<>@:\[]{0,256}:"
            r"(?P<secret>[^\s\"'<>`]{1,512})@"
        ),
        _not_marked,
        begins=("sql://", "mongodb://", "+srv://", "redis://", "rediss://", "amqp://", "amqps://"),
    ),
    Form(
        "url-password",
        re.compile(r"://(?P<secret>[A-Za-z0-9_\-.~%]{20,512})@"),
        begins=("://",),
    ),
    Form(
        "authorization",
        re.compile(
            r"authorization(?:\\?[\"'\]])*[ \t]{0,4}[:=,][ \t]{0,4}\\?[\"'`]?"
            r"(?P<secret>(?:[A-Za-z-]{1,20}[ \t]+)?[^\s\"'`\\,;]+)",
            re.IGNORECASE,
        ),
        _not_marked,
        begins=("authorization",),
    ),
    Form(
        "authorization",
        re.compile(r"(?i:bearer|basic)[ \t]+(?P<secret>[A-Za-z0-9\-._~+/]{8,}={0,2})"),
        _credential,
        begins=("bearer", "basic"),
    ),
    Form(
        "cookie",
        re.compile(
            r"cookie(?:\\?[\"'\]])*[ \t]{0,4}:[ \t]{0,4}\\?[\"'`]?"
            r"(?P<secret>[^\s\"'`\\=]{1,128}=[^\r\n\"'`\\]*)",
            re.IGNORECASE,
        ),
        _not_marked,
        begins=("cookie",),
    ),
    Form(
        "named-secret",
        re.compile(
            rf"(?P<name>{_ANY_NAME})"
            r"(?P<about>[\w-]{0,40})(?:\\{0,3}[\"'`\]]){0,3}[ \t]{0,8}"
            r"(?P<sign>:=|=>|={1,3}|!==?|::?)[ \t]{0,8}"
            r"(?P<quote>\\{0,3}[\"'`])?"
            r"(?P<secret>(?(quote)(?:(?!(?P=quote))[^\n]){0,4096}|[^\s\"'`,;&<>(){}\\][^\s\"'`<>]{0,8192}))",
            re.IGNORECASE,
        ),
        _named,
        begins=(*_NAMES, "_pass", "-pass", "_auth"),
    ),
    Form(
        "named-secret",
        re.compile(
            r"--?[a-z-]{0,30}(?:password|passwd|passphrase|token|secret|api-?key)"
            r"(?:[ \t]+|=)[\"']?(?P<secret>[^\s\"'-][^\s\"']*)",
            re.IGNORECASE,
        ),
        _not_marked,
        begins=("--", " -"),
    ),
    Form(
        "named-secret",
        re.compile(
            r"(?:login[ \t]+\S{1,128}[ \t]+password[ \t]+|sshpass[ \t]+-p[ \t]*"
            r"|(?: -u|--user)[ \t=]+[\"']?[^\s:\"']{1,128}:)[\"']?(?P<secret>[^\s\"']+)"
        ),
        _not_marked,
        begins=("login", "sshpass", " -u", "--user"),
    ),
    Form(
        "url-parameter",
        re.compile(rf"[?&](?i:{'|'.join(_PARAMETERS)})=(?P<secret>[^&\s\"'<>`]{{16,}})"),
        _not_marked,
        begins=tuple(f"{sign}{name}=" for sign in "?&" for name in _PARAMETERS),
    ),
    Form(
        "wrapped-token",  # the further lines of one that a screen has broken
        re.compile(
            rf"\[redacted:[a-z0-9-]{{1,60}}\](?P<secret>(?:{_BREAK}{_RUN}{{20,512}}{_LINE_END})+"
            rf"(?:{_BREAK}{_RUN}{{1,19}}{_LINE_END})?)"
        ),
        lambda match: "" if _mixed(match["secret"]) else None,
        begins=(MARK,),
    ),
)
"""Our own forms, in the order in which they are looked for."""


@cache
def library() -> tuple[Form, ...]:
    """Return the forms that detect-secrets knows: its token detectors, by their patterns.

    Their patterns are used and not `analyze_string`, which gives of some tokens only a part.
    Left out are those of entropy (they take hashes and ids), and those for a whole line of a
    known file's language, which `OWN` has in a form of bounded cost. Loading takes 0.15 s and
    20 MB (it brings an HTTP client), so nothing else loads it.
    """
    from detect_secrets.plugins.artifactory import ArtifactoryDetector
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.discord import DiscordBotTokenDetector
    from detect_secrets.plugins.github_token import GitHubTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.openai import OpenAIDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector
    from detect_secrets.plugins.stripe import StripeDetector
    from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
    from detect_secrets.plugins.twilio import TwilioKeyDetector

    detectors: tuple[tuple[type[RegexBasedDetector], tuple[str, ...]], ...] = (
        (ArtifactoryDetector, ("akc", "ap")),
        (AWSKeyDetector, ("akia", "asia", "abia", "acca", "a3t", "aws")),
        (AzureStorageKeyDetector, ("accountkey=",)),
        (DiscordBotTokenDetector, (".",)),
        (GitHubTokenDetector, ("gh",)),
        (GitLabTokenDetector, ("gl", "gr1348941")),
        (MailchimpDetector, ("-us",)),
        (OpenAIDetector, ("t3blbkfj",)),
        (PypiTokenDetector, ("pypi-",)),
        (SendGridDetector, ("sg.",)),
        (SlackDetector, ("xox", "hooks.slack.com")),
        (SquareOAuthDetector, ("sq0csp-",)),
        (StripeDetector, ("k_live_",)),
        (TelegramBotTokenDetector, (":",)),
        (TwilioKeyDetector, ("ac", "sk")),
    )
    return tuple(
        Form(_slug(detector.secret_type), pattern, _has_digit, needs=needs)  # type: ignore[arg-type]
        for detector, needs in detectors
        for pattern in detector.denylist  # type: ignore[attr-defined]
    )


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def _has_digit(match: re.Match[str]) -> str | None:
    return "" if any(c.isdigit() for c in match[0]) else None


_END: Final = re.compile(rf"-----END {_PEM_LABEL}-----")
_BODY_LINE: Final = re.compile(rf"[{_BOX}]*[A-Za-z0-9+/=\\]{{1,200}}[{_BOX}]*")


_BODY_END: Final = re.compile(rf"[A-Za-z0-9+/=]{{32,}}[{_BOX}]*$")


def beheaded_keys(text: str) -> Iterator[tuple[int, int]]:
    """Return where the ends of private keys are whose beginning is not in the text."""
    for end in _END.finditer(text):
        start = text.rfind("\n", 0, end.start()) + 1
        while start > 0:
            before = text.rfind("\n", 0, start - 1) + 1
            line = text[before : start - 1].rstrip("\r")
            if not _BODY_LINE.fullmatch(line):
                begun = _BODY_END.search(line, max(0, len(line) - 200))
                start = start if begun is None else before + begun.start()
                break
            start = before
        yield start, end.end()
