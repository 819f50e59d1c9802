"""Secrets in command lines: `mysql -p…`, `curl -u ada:…`, `echo … | sudo -S`."""

import re
from typing import Final

from outrider.machine.redaction.scan import MARK, AnchoredDetector, Scan, Secret, pattern_detector
from outrider.machine.redaction.values import is_placeholder

_WORD: Final = (
    r"(?:\"(?P<double>[^\"\n]{1,256}+)|'(?P<single>[^'\n]{1,256}+)"
    r"|(?P<bare>[^\s\"'|;&<>()]{1,256}+))"
)
_WORD_GROUPS: Final = ("double", "single", "bare")
_ARGUMENTS: Final = r"[^\n|;&]{0,300}?"


def _command(programs: str, option: str, needs: str = "") -> AnchoredDetector:
    """Return a detector for `program … option secret`.

    Args:
        programs: names separated by spaces; a name that ends in `*` is a prefix.
        option: a pattern that ends right before the secret.
        needs: a pattern that has to match somewhere before the option.
    """
    names = programs.split()
    anchors = tuple(name.rstrip("*") for name in names)
    either = "|".join(
        re.escape(name.rstrip("*")) + (r"[\w-]{0,20}" if "*" in name else r"(?![\w-])")
        for name in names
    )
    ahead = rf"(?={_ARGUMENTS}{needs})" if needs else ""
    pattern = re.compile(
        rf"(?:{either})(?:\.exe)?{ahead}{_ARGUMENTS}{option}{_WORD}", re.IGNORECASE
    )

    def find(scan: Scan, place: int) -> Secret | None:
        before = scan.text[place - 1 : place]
        match = (
            scan.match(pattern, place) if not (before.isalnum() or before in ("_", "-")) else None
        )
        if match is None:
            return None
        group = next(name for name in _WORD_GROUPS if match[name] is not None)
        value = match[group]
        if value.startswith("-") or MARK in value or is_placeholder(value):
            return None
        return Secret(*match.span(group), "command-argument")

    return AnchoredDetector(anchors, find)


_USER: Final = r"[\"']?[^\s:\"',%]{1,128}"
_COMMANDS: Final = (
    _command("mysql* mariadb* 7z* rar unrar sshpass", r"[ \t]-p"),
    _command("sshpass", r"[ \t]-p[ \t]+"),
    _command(
        "docker podman nerdctl buildah skopeo helm oras crane az",
        r"[ \t]-p[ \t=]+",
        r"[ \t]login\b",
    ),
    _command("mongo* cqlsh twine psexec rdesktop influx*", r"[ \t]-p[ \t]+"),
    _command("redis-cli", r"[ \t]-a[ \t]+"),
    _command("smbclient rpcclient smbmap", r"[ \t](?:-U|--user)[ \t=]*[\"']?[^\s%\"']{1,128}%"),
    _command("ldap*", r"[ \t](?-i:-w)[ \t]+"),
    _command("unzip zip sqlcmd bcp isql ipmitool", r"[ \t](?-i:-P)[ \t]+"),
    _command("snmp*", r"[ \t](?-i:-[AX])[ \t]+"),
    _command("curl", rf"[ \t](?:-[uU]|--user|--proxy-user)[ \t=]*{_USER}:"),
    _command("curl", r"[ \t](?:-b|--cookie)[ \t=]*(?=[\"']?[^\s=\"']{1,80}=)"),
    _command("lftp ncftp*", rf"[ \t]-u[ \t]*{_USER},"),
    _command(
        "htpasswd", r"[ \t]-[A-Za-z]{0,6}b[A-Za-z]{0,6}[ \t]+\S{1,200}[ \t]+[^\s-]\S{0,100}[ \t]+"
    ),
    _command("rabbitmqctl", r"(?:add_user|change_password)[ \t]+\S{1,100}[ \t]+"),
    _command("nmcli mysqladmin", r"[ \t]password[ \t]+"),
    _command("vault", r"[ \t]+login[ \t]+(?!\S*=)"),
    _command("net", r"/user:\S{1,128}+[ \t]+", r"[ \t]use\b"),
    _command("xfreerdp*", r"[ \t]/p:"),
    _command("keytool jarsigner", r"[ \t]-(?:src|dest|key)?(?:store|key)?pass[ \t]+"),
    _command("openssl", r"(?:pass:|[ \t]-k[ \t]+)"),
    _command("gh", r"[ \t](?:-b|--body)[ \t=]*", r"[ \t]secret[ \t]+set\b"),
    _command("wpa_passphrase", r"[ \t]+\S{1,64}[ \t]+"),
)

_PIPED: Final = (
    r"echo[ \t]+(?:-[neE]{1,3}[ \t]+)?"
    r"(?:\"(?P<double>[^\"\n]{1,200}+)\"|'(?P<single>[^'\n]{1,200}+)'"
    r"|(?P<bare>[^\n|\"']{1,200}+))[ \t]*\|[ \t]*[^\n|]{0,160}?"
    r"(?:sudo[ \t]+-\w{0,4}(?-i:S)|-stdin|chpasswd|--with-token|-fd[ \t]0|-file[ =]-)"
)
_PIPE: Final = re.compile(_PIPED, re.IGNORECASE)


def _piped(scan: Scan, place: int) -> Secret | None:
    """Find `echo … | sudo -S`."""
    match = scan.match(_PIPE, place)
    if match is None:
        return None
    group = next(name for name in _WORD_GROUPS if match[name] is not None)
    start, end = match.span(group)
    end -= len(match[group]) - len(match[group].rstrip())
    return None if is_placeholder(scan.text[start:end]) else Secret(start, end, "command-argument")


DETECTORS: Final = (
    pattern_detector(
        "named-secret",
        ("--", " -"),
        r"(?:[ \t]-|--)[a-z-]{0,30}?(?:password|passwd|passphrase|token|api-?key)(?:[ \t]{1,4}+|=)"
        r"(?P<quote>[\"'])?(?P<secret>(?(quote)[^\"'\n]+|[^\s\"'-][^\s\"']*+))",
        lambda m: not is_placeholder(m["secret"]),
        more=r"[^\s\"']",
    ),
    pattern_detector(
        "named-secret",
        ("-u", "--user"),
        r"(?:-u|--user)[ \t=]+[\"']?[^\s:\"'/\[]{1,128}+:(?!//)(?P<secret>[^\s\"'/]{1,256}+)",
        lambda m: (
            not is_placeholder(m["secret"]) and not re.fullmatch(r"\d+(?::\d+)?", m["secret"])
        ),
    ),
    AnchoredDetector(("echo ",), _piped),
    *_COMMANDS,
)
"""The detectors of this module, in the order in which they run."""
