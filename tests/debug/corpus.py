"""Secrets of every kind, and what only looks like one.

The secrets are put together when a test runs, out of chance and of beginnings that are cut in
two: nothing in this file has the form of one, for those who look for leaks in a repository.
"""

import base64
import json
import random
import string
from typing import NamedTuple

from outrider.contract.ids import Prefix, derived_id

_chance = random.Random(5)


def _id(prefix: Prefix) -> str:
    """Return an id as this program makes them, the same in every process that runs the tests."""
    return derived_id(prefix, 1_795_000_000_000, prefix)


_LETTERS = string.ascii_letters + string.digits


def _some(length: int, alphabet: str = _LETTERS) -> str:
    """Return some characters, at least one of them a digit and one a letter."""
    middle = "".join(_chance.choice(alphabet) for _ in range(length - 2))
    return f"{_chance.choice([c for c in alphabet if c.isalpha()])}{middle}7"


def _hex(length: int) -> str:
    return _some(length, "0123456789abcdef")


def _base64(length: int) -> str:
    return _some(length, _LETTERS + "+/")


def _jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{_some(43, _LETTERS + '_-')}"


def _code(groups: int) -> str:
    letters = "BCDFGHJKLMNPQRSTVWXZ23456789"
    made = ["".join(_chance.choice(letters) for _ in range(4)) for _ in range(groups)]
    return "-".join(["B" + made[0][1:], *made[1:]])


class Secret(NamedTuple):
    """A secret within a text. `hidden` must be gone; `text` is where it stands."""

    kind: str
    text: str
    hidden: str


def _bare(kind: str, *tokens: str) -> list[Secret]:
    return [Secret(kind, token, token) for token in tokens]


def _in(kind: str, *pairs: tuple[str, str]) -> list[Secret]:
    """`{}` in a template stands for the secret."""
    return [Secret(kind, template.replace("{}", value), value) for template, value in pairs]


def _pem(label: str, lines: int = 12) -> tuple[str, str]:
    """Return a private key with its secret part."""
    body = "\n".join(_base64(64) for _ in range(lines))
    dashes = "-" * 5
    return f"{dashes}BEGIN {label}{dashes}\n{body}\n{dashes}END {label}{dashes}", body


def secrets() -> list[Secret]:
    """Return the corpus."""
    private = "PRIVATE " + "KEY"
    keys = [_pem(label) for label in (private, f"RSA {private}", f"EC {private}",
                                      f"OPENSSH {private}", f"ENCRYPTED {private}",
                                      f"PGP {private} BLOCK")]  # fmt: skip
    whole, body = keys[0]
    cut_short, headless = whole.split("\n"), whole.split("\n")
    return [
        *_bare("outrider", "or" + "k_" + _some(38), "om" + "t_" + _some(43),
               "whs" + "ec_" + _some(40), _some(43), _code(2), _code(3)),
        *_bare("jwt", _jwt(sub="1", exp=1), _jwt(email="ada@example.org"),
               _jwt(scope="x" * 900), _jwt()[:-20]),
        *_bare("model", "sk-a" + "nt-api03-" + _some(93), "sk-a" + "nt-oat01-" + _some(90),
               "sk-" + "proj-" + _some(120, _LETTERS + "_-"), "sk" + "-" + _some(48),
               "sk-" + "or-v1-" + _hex(64), "h" + "f_" + _some(34), "gs" + "k_" + _some(52),
               "xa" + "i-" + _some(80), "r8" + "_" + _some(37), "AI" + "za" + _some(35),
               "ya" + "29." + _some(60), "GOC" + "SPX-" + _some(28), "nva" + "pi-" + _some(64)),
        *_bare("forge", "gh" + "p_" + _some(36), "gh" + "o_" + _some(36), "gh" + "s_" + _some(36),
               "gh" + "u_" + _some(36), "gh" + "r_" + _some(76),
               "github" + "_pat_" + _some(22) + "_" + _some(59), "glp" + "at-" + _some(20),
               "glr" + "t-" + _some(20), "GR13" + "48941" + _some(20), "np" + "m_" + _some(36),
               "py" + "pi-AgEIcHlwaS5vcmc" + _some(90), "glp" + "tt-" + _hex(40)),
        *_bare("cloud", "AK" + "IA" + _some(16, string.ascii_uppercase + "234567"),
               "AS" + "IA" + _some(16, string.ascii_uppercase + "234567"),
               "dop_" + "v1_" + _hex(64), "hv" + "s." + _some(90), "dckr" + "_pat_" + _some(27),
               "da" + "pi" + _hex(32), "tsk" + "ey-auth-" + _some(30), "gls" + "a_" + _some(41),
               "pscale" + "_tkn_" + _some(43), "sb" + "p_" + _hex(40), "NR" + "AK-" + _some(27)),
        *_in("cloud", ("AccountName=x;Account" + "Key={};EndpointSuffix=y", _base64(86) + "=="),
             ("aws_secret_" + "access_key = {}", _base64(40)),
             ("https://x.blob.example/c?sv=2024&si" + "g={}", _some(44) + "%3D")),
        *_bare("service", "xo" + "xb-" + "123456789012-" + _some(24),
               "xo" + "xp-" + "1234567890-1234567890-" + _hex(32),
               "xap" + "p-1-A01-" + "123-" + _hex(64), "sk" + "_live_" + _some(24),
               "rk" + "_live_" + _some(99), "sk" + "_test_" + _some(24),
               "S" + "G." + _some(22) + "." + _some(43), "shp" + "at_" + _hex(32),
               "12345678" + "9:AA" + _some(33), "M" + _some(23) + "." + _some(6) + "." + _some(27),
               "SK" + _hex(32), _hex(32) + "-us" + "12", "lin" + "_api_" + _some(40)),
        *_in("service", ("https://hooks.slack" + ".com/services/T01/B02/{}", _some(24))),
        *_in("url", ("postgres://ada:{}@db.example/app", "hunter2"),
             ("postgresql://ada:{}@db/app", "p@ss/w#rd"), ("redis://:{}@cache:6379/0", _some(20)),
             ("https://ada:{}@git.example/x.git", _some(12)),
             ("https://{}@git.example/x.git", _some(40)),
             ("amqp://guest:{}@mq:5672", "gu-est"), ("mongodb+srv://u:{}@c.example", "a%40b")),
        *_in("header", ("Authorization: Bearer {}", _some(30)), ("authorization: Basic {}",
             base64.b64encode(b"ada:lovelace").decode()), ("Proxy-Authorization: Digest {}",
             _some(20)), ("Cookie: theme=dark; session={}", _some(24)),
             ("Set-Cookie: sid={}; Path=/; HttpOnly", _some(32)), ("X-Api-Key: {}", _some(20)),
             ("curl -H 'Authorization: {}' https://x", _some(25)), ("bearer {}", _some(18)),
             ("PRIVATE-TOKEN: {}", _some(20))),
        *_in("named", ("password={}", "hunter3"), ("DB_PASSWORD: {}", "correct-horse"),
             ('"password": "{}"', "with space"), ("'api_key' => '{}'", _some(16)),
             ("apiKey={}", _some(16)), ("export GITHUB_TOKEN={}", _some(22)),
             ("CLIENT_SECRET='{}'", _some(32)), ("passphrase: {}", "tr0ub4dor"),
             ("--password {}", "swordfish"), ("--api-key={}", _some(20)),
             ("tool --token {} run", _some(18)), ('{\\"password\\": \\"{}\\"}', "inner1"),
             ("https://x.example/?access_token={}&a=1", _some(20)), ("curl -u ada:{} https://x",
             "s3same"), ("device_code={}", _some(30)), ("user_code: {}", "WDJB-MJHT"),
             ("sshpass -p {} ssh host", "letmein9"), ("machine h login ada password {}", "pw0rd"),
             ("secretKey := `{}`", "bäckticks"), ("MYSQL_PWD={}", "rootroot"),
             ("Password: {}", "Tr0ub4dor&3"), ("refresh_token = \"{}\"", "shorty"),
             ("db_pass={}", "qwerty1")),
        *[Secret("private-key", text, secret) for text, secret in keys],
        Secret("private-key", "\n".join(cut_short[:-4]), cut_short[3]),
        Secret("private-key", "\n".join(headless[5:]), headless[7]),
        Secret("private-key", whole.replace("\n", "\\n"), body.replace("\n", "\\n")),
    ]  # fmt: skip


def innocents() -> list[str]:
    """Return what must stay as it is."""
    return [
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",  # git
        "9f86d08",
        "commit e3b0c44298fc1c149afbf4c8996fb92427ae41e4",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",  # SHA-256
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "d41d8cd98f00b204e9800998ecf8427e",  # MD5
        "sha512-" + base64.b64encode(bytes(range(64))).decode(),  # integrity
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "F47AC10B-58CC-4372-A567-0E02B2C3D479",
        "018f6f2e-0000-7000-8000-000000000001",
        _id("session"),
        _id("machine"),
        _id("msg"),
        f"{_id('machine')}:session:{_id('session')}",
        f"{_id('machine')}:cli:claude-code",
        _id("key"),
        "toolu_01A09q90qw90lq917835lq9",
        "/home/ada/projects/engine/src/difference/engine_token_reader.py",
        "~/.config/outrider/connection.json",
        "C:\\Users\\Ada\\AppData\\Local\\Programs\\outrider.exe",
        "file:///srv/project/tests/password_reset_test.py:42",
        "data:image/png;base64," + base64.b64encode(bytes(range(200))).decode(),
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "1.24.0-rc.1+build.5114f85",
        "detect-secrets==1.5.0",
        "Python 3.11.9, node v22.11.0, tmux 3.5a",
        "https://github.com/python/cpython/blob/v3.11.9/Lib/token.py#L42",
        "http://localhost:3000/@vite/client?t=1763674200000",
        "https://example.org:8400/api/v1/daemons?limit=20&after=msg_1",
        "git@github.com:outrider/outrider.git",
        "ssh://git@github.com/outrider/outrider.git",
        "ada@example.org",
        "supercalifragilisticexpialidocious",
        "Donaudampfschifffahrtsgesellschaftskapitaen",
        "test_a_credential_at_an_endpoint_is_refused_where_it_has_no_scope",
        "AbstractSingletonProxyFactoryBeanConfigurationProvider2",
        "Tokens: 12.5k sent, 1.2k received. Cost: $0.04 message",
        "max_tokens=4096",
        "token_count: 128000",
        "tokenizer: gpt2-medium",
        "unexpected token: expected a closing bracket",
        "def login(password: str, token: str | None = None) -> Session:",
        "api_key=os.environ['API_KEY']",
        "export TOKEN=$MY_TOKEN",
        "password=None",
        "PWD=/home/ada/project",
        "2026-11-20T22:30:00.123Z",
        "1763674272500",
        "192.168.178.20:8400",
        "2001:db8:85a3::8a2e:370:7334",
        "+49 30 1234-5678",
        "import { useToken } from '@/hooks/useToken'",
        "Basic understanding of bearer authentication",
        "sk-learn-pipelines-and-preprocessing",
        "task-7f3a9c21-retry-5",
        "fork_count_total_since_boot=7",
        "claude-sonnet-4-5-20250929",
        "gpt-4o-mini-2024-07-18",
        "-----BEGIN CERTIFICATE-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB ada@example.org",
        '│ > Try "how do I log an error?"            │',
        "cookie-parser@1.4.7",
        "HTTP/1.1 401 Unauthorized",
    ]
