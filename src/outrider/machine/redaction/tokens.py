"""Tokens that are recognizable by themselves: by a prefix or by their shape.

The prefixes and shapes are documented by the issuers, or used by detect-secrets, gitleaks or
GitHub's secret scanning. detect-secrets itself is not used: some of its patterns take quadratic
time on a crafted text, and loading them takes 0.15 s and 20 MB.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from outrider.machine.redaction.scan import Scan, Secret, pattern_detector
from outrider.machine.redaction.values import has_letters_and_digits

_MIN: Final = 20
"""Characters of the shortest token."""

_PREFIXES: Final = {
    "outrider-token": "ork_ omt_ whsec_",
    "anthropic-key": "sk-ant-",
    "openai-key": "sk-proj- sk-svcacct- sk-admin-",
    "model-key": (
        "sk-or-v1- sk-lf- gsk_ xai- pplx- nvapi- tgp_v1_ lsv2_pt_ lsv2_sk_ pcsk_ tvly- "
        "csk- jina_ AQ.Ab8 e2b_ rpa_ ABSK bedrock-api-key-"
    ),
    "github-token": "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    "gitlab-token": (
        "glpat- gldt- glrt- glrtr- glcbt- glptt- gloas- glft- glffct- glsoat- glagent- "
        "glimt- GR1348941"
    ),
    "atlassian-token": "ATATT3 ATCTT3 ATSTT3 ATBB ATTA",
    "npm-token": "npm_",
    "pypi-token": "pypi-",
    "package-token": "rubygems_ dckr_pat_ dckr_oat_ CLOJARS_ cmVmdGtu",
    "build-token": (
        "CCIPAT_ CCIPRJ_ bkua_ sgp_ sqp_ squ_ sqa_ pul- pnu_ pnb_ dbtc_ dbtu_ sntrys_ sntryu_"
    ),
    "slack-token": "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp- xwfp-",
    "stripe-key": "sk_live_ sk_test_ rk_live_ rk_test_",
    "google-key": "AIza ya29. GOCSPX-",
    "aws-key": "AKIA ASIA ABIA ACCA A3T",
    "cloud-token": (
        "dop_v1_ doo_v1_ dor_v1_ hvs. hvb. hvr. dapi tskey- glsa_ glc_ pscale_tkn_ "
        "pscale_pw_ pscale_oauth_ sbp_ sb_secret_ fo1_ fm1r_ fm1a_ fm2_ NRAK- NRII- napi_ "
        "nfp_ HRKU- rnd_ LTAI AVNS_ AQVN vercel_blob_rw_ dp.pt. dp.st. dp.ct. dp.sa. "
        "dp.scim. dp.audit. ops_eyJ mdb_sa_sk_ CCDB1_ dt0c01. dt0s16."
    ),
    "service-token": (
        "shpat_ shpss_ shpca_ shppa_ lin_api_ lin_oauth_ ntn_ figd_ figu_ figo_ figor_ "
        "PMAK- PMAT- sq0csp- sq0atp- EAAC xkeysib- xsmtpsib- SG. CFPAT- rdme_ "
        "shippo_live_ shippo_test_ EZAK EZTK FLWSECK duffel_live_ fio-u- aio_ waka_ tfp_ "
        "pat-na1- pat-eu1- access-sandbox- access-production- access-development- syt_ "
        "phx_ AGE-SECRET-KEY-1 nsec1 xprv"
    ),
}
_KIND_OF: Final = {begin: kind for kind, begins in _PREFIXES.items() for begin in begins.split()}
_ANY_PREFIX: Final = tuple(_KIND_OF)

_WEAK_PREFIXES: Final = {
    "sk-": "openai-key", "sess-": "openai-key", "hf_": "model-key", "r8_": "model-key",
    "fw_": "model-key", "re_": "service-token", "sk_": "model-key",
    "secret_": "service-token",
}  # fmt: skip
"""Prefixes that words have too: the rest needs a long random part."""

_ANY_WEAK_PREFIX: Final = tuple(_WEAK_PREFIXES)
_INSIDE: Final = re.compile(
    "|".join(
        re.escape(begin)
        for begin in sorted(_KIND_OF, key=len, reverse=True)
        if re.search(r"[_.-]", begin) and len(begin) > 4
    )
    + r"|npm_|gh[pousr]_|eyJ[\w-]{8,200}+\.[\w-]{8}"
)
"""Prefixes that no word contains, so that they count in the middle of a run as well."""

_SHAPES: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("terraform-token", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{10,}"),
        ("discord-token", r"[MNO][A-Za-z0-9]{23,25}\.[\w-]{6}\.[\w-]{10,38}"),
        ("mailchimp-key", r"[0-9a-f]{32}-us\d{1,2}"),
        ("twilio-key", r"SK[0-9a-f]{32}"),
        ("mailgun-key", r"key-[0-9a-f]{32}"),
        ("airtable-token", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{10,64}"),
        ("vault-token", r"[sb]\.[A-Za-z0-9]{24}"),
        ("ngrok-token", r"[12][A-Za-z0-9]{26,27}_[A-Za-z0-9]{20,30}"),
        (
            "package-token",
            r"cio[A-Za-z0-9]{32}|oy2[a-z0-9A-Z]{43}|(?:AKC|AP[\dABCDEF])[A-Za-z0-9]{40,}",
        ),
    )
)
_AFTER_NUMBER: Final = (
    ("telegram-token", 35, re.compile(r"(?<!\d)\d{8,10}:\Z")),
    ("asana-token", 32, re.compile(r"(?<!\d)\d/\d{10,20}(?:/\d{10,20})?:\Z")),
    ("facebook-token", 27, re.compile(r"(?<!\d)\d{13,17}\|\Z")),
)
"""Tokens by their length, with a number before them."""

_ENROLLMENT_CODE: Final = re.compile(
    r"(?=.*[A-Z])[B-DF-HJ-NP-TV-XZ2-9]{4}(?:-[B-DF-HJ-NP-TV-XZ2-9]{4}){1,2}"
)
_DEVICE_CODE: Final = 43
_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_\-.]{8,}+")


class _TokenDetector:
    """Finds tokens in runs of token characters."""

    def search(self, scan: Scan) -> Iterator[Secret]:
        """Return the tokens, in order."""
        for found in scan.everywhere(_RUN):
            run = found[0].rstrip(".-")
            start, kind = _classify(scan, run, found.start())
            if kind is not None:
                yield Secret(found.start() + start, found.start() + len(run), kind)


def _classify(scan: Scan, run: str, place: int) -> tuple[int, str | None]:
    """Return the start of the token in a run and its kind, or None if there is no token."""
    scan.examined += 3 * len(run)
    if len(run) < _MIN:
        return 0, "enrollment-code" if _is_enrollment_code(run) else None
    if not has_letters_and_digits(run):
        return 0, None
    if run.startswith("eyJ") and "." in run:
        return 0, "jwt"
    if run.startswith(_ANY_PREFIX):
        kind = next(kind for begin, kind in _KIND_OF.items() if run.startswith(begin))
        if _looks_random(run):
            return 0, kind
    elif run.startswith(_ANY_WEAK_PREFIX) and _looks_random(run, piece=16):
        return 0, next(kind for begin, kind in _WEAK_PREFIXES.items() if run.startswith(begin))
    inside = _INSIDE.search(run)
    if (
        inside is not None
        and len(run) - inside.start() >= _MIN
        and _looks_random(run[inside.start() :])
    ):
        kind = "jwt" if inside[0].startswith("eyJ") else _KIND_OF.get(inside[0], "token")
        return inside.start(), kind
    return 0, _shape(scan, run, place)


def _shape(scan: Scan, run: str, place: int) -> str | None:
    for kind, pattern in _SHAPES:
        if len(run) <= 256 and pattern.fullmatch(run):
            return kind
    for kind, length, pattern in _AFTER_NUMBER:
        if len(run) == length and pattern.search(scan.before(place, 44)):
            return kind
    has_shape = len(run) == _DEVICE_CODE and run.isalnum()
    return "device-code" if has_shape and not run.islower() and not run.isupper() else None


def _looks_random(run: str, piece: int = 8) -> bool:
    """Return whether a run has a part of at least `piece` letters and digits, mixed."""
    return any(
        len(found[0]) >= piece and has_letters_and_digits(found[0])
        for found in _PIECE.finditer(run)
    )


_PIECE: Final = re.compile(r"[A-Za-z0-9]{8,}+")


def _is_enrollment_code(run: str) -> bool:
    return len(run) < 16 and _ENROLLMENT_CODE.fullmatch(run) is not None


def _is_private_key(match: re.Match[str]) -> bool:
    """Return whether base64 text starts with a private key."""
    try:
        begin = base64.b64decode(match[0][:80])
    except (binascii.Error, ValueError):
        return False
    return b"PRIVATE KEY" in begin


DETECTORS: Final = (
    _TokenDetector(),
    pattern_detector(
        "private-key",
        ("LS0tLS1CRUdJTi",),
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{66,}+",
        _is_private_key,
        more="[A-Za-z0-9+/=]",
        flags=re.NOFLAG,
    ),
    pattern_detector("azure-secret", ("7q~", "8q~"), r"[78]Q~[\w~.-]{31,34}(?![\w~.-])"),
    pattern_detector(
        "google-key",
        ("1//0",),
        r"1//0[\w-]{20,}+",
        lambda m: has_letters_and_digits(m[0][4:]),
        more=r"[\w-]",
    ),
    pattern_detector("amazon-token", ("atza|", "atzr|"), r"Atz[ar]\|[\w-]{20,}+", more=r"[\w-]"),
    pattern_detector(
        "password-hash",
        ("$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$", "$apr1$", "$argon2", "$scrypt$",
         "$pbkdf2"),
        r"\$[\w-]{1,16}+\$[./\w+=,$-]{16,}+",
        lambda m: has_letters_and_digits(m[0]),
        more=r"[./\w+=,$-]",
    ),
)  # fmt: skip
"""The detectors of this module, in the order in which they run."""
