"""Every secret goes, and what only looks like one stays."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from outrider.daemon.debug.bounds import Bounds
from outrider.daemon.debug.names import is_secret_name
from outrider.daemon.debug.redaction import Redactor
from tests.debug.corpus import Secret, innocents, secrets

CORPUS = secrets()
INNOCENTS = innocents()


def redacted(text: str) -> str:
    return Redactor().text(text)


def assert_gone(secret: Secret, text: str) -> None:
    """Fail where the secret, or any third of one that is long, is left."""
    third = max(6, len(secret.hidden) // 3)
    pieces = [secret.hidden[i : i + third] for i in range(0, len(secret.hidden) - third + 1, 3)]
    left = [piece for piece in (secret.hidden, *pieces) if piece in text]
    assert not left, f"{secret.kind}: {secret.text!r} became {text!r}"


def test_the_corpus_is_as_large_as_the_issue_asks() -> None:
    assert len(CORPUS) >= 80
    assert len({secret.kind for secret in CORPUS}) >= 10
    assert len({secret.hidden for secret in CORPUS}) == len(CORPUS)
    assert len(set(INNOCENTS)) >= 40


@pytest.mark.parametrize("around", ["{}", "see {} there", "a\n{}\nb", '"{}"', "│ {} │"])
@pytest.mark.parametrize("secret", CORPUS, ids=lambda s: s.kind)
def test_a_secret_in_a_text(secret: Secret, around: str) -> None:
    redactor = Redactor()
    text = redactor.text(around.replace("{}", secret.text))
    assert_gone(secret, text)
    assert redactor.counts.total() >= 1
    assert Redactor().text(text) == text  # what is redacted once, is


LONG = [
    secret
    for secret in CORPUS
    if secret.text == secret.hidden and len(secret.text) >= 70 and "\n" not in secret.text
]


@pytest.mark.parametrize("edges", [("", ""), ("  ", ""), ("│ ", " │")])
@pytest.mark.parametrize("secret", LONG, ids=lambda s: s.kind)
def test_a_long_token_that_a_screen_has_broken(secret: Secret, edges: tuple[str, str]) -> None:
    left, right = edges
    pieces = [secret.text[i : i + 48] for i in range(0, len(secret.text), 48)]
    shown = "\n".join(f"{left}{piece}{right}" for piece in ["it is", *pieces, "and so on"])
    text = redacted(shown)
    assert not [piece for piece in pieces if len(piece) >= 20 and piece in text]
    assert f"{left}it is{right}" in text
    assert f"{left}and so on{right}" in text


@pytest.mark.parametrize("secret", CORPUS, ids=lambda s: s.kind)
def test_a_secret_anywhere_in_json(secret: Secret) -> None:
    value = {
        "deep": [{"list": ["x", {"text": f"it is {secret.text}"}]}],
        secret.text: None,
        "inJson": json.dumps({"body": json.dumps({"x": secret.text})}),
    }
    bounds = Bounds(Redactor())
    kept = json.dumps(bounds.fit(value, 64 * 1024, "frontendSnapshot"), ensure_ascii=False)
    if "\n" not in secret.hidden and "\\" not in secret.text:
        assert_gone(secret, kept)
    assert not bounds.omitted


@pytest.mark.parametrize("innocent", INNOCENTS)
@pytest.mark.parametrize("around", ["{}", "see {} there", "a\n{}\nb", '"{}"', "({})"])
def test_an_innocent_stays(innocent: str, around: str) -> None:
    redactor = Redactor()
    text = around.replace("{}", innocent)
    assert redactor.text(text) == text
    assert not redactor.counts


@pytest.mark.parametrize("innocent", INNOCENTS)
def test_an_innocent_stays_in_json(innocent: str) -> None:
    value = {"items": [innocent], innocent[:200]: {"value": innocent}}
    assert Bounds(Redactor()).fit(value, 4096, "x") == value


@pytest.mark.parametrize(
    "name",
    ["password", "dbPassword", "DB_PASSWORD", "user-password", "apiKey", "API_KEY", "x-api-key",
     "accessToken", "refresh_token", "Authorization", "set-cookie", "clientSecret", "private_key",
     "deviceCode", "user_code", "credentials", "connectionString", "AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_what_has_a_secret_name_goes_whatever_it_is(name: str) -> None:
    value = {name: "plain words", "n": {name: 123456}, "l": {name: ["one", {"x": 2.5}]}}
    kept = Bounds(Redactor()).fit(value, 4096, "x")
    text = json.dumps(kept)
    assert all(secret not in text for secret in ("plain", "123456", "one", "2.5"))
    assert name in text


@pytest.mark.parametrize(
    "name",
    ["tokenCount", "max_tokens", "tokens", "passwordPolicy", "key", "keyCode", "sessionId",
     "secretName", "cookiePath", "author", "passed", "compass", "keyboard", "tokenizer"],
)  # fmt: skip
def test_a_number_under_an_innocent_name_stays(name: str) -> None:
    value = {name: 4096, "x": {name: {"input": 12}}}
    assert Bounds(Redactor()).fit(value, 4096, "x") == value
    assert not is_secret_name(name, of_text=False)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Authorization", "value": "plainword"},
        {"key": "API_KEY", "value": "plainword"},
        ["Cookie", "plainword"],
        {"headers": [["X-Api-Key", "plainword"], ["Accept", "*/*"]]},
        {"tokens": ["plainword"]},
        {"auth": {"anything": "plainword"}},
    ],
)
def test_pairs_of_a_name_and_a_value(value: Any) -> None:
    assert "plainword" not in json.dumps(Bounds(Redactor()).fit(value, 4096, "x"))


def test_two_keys_that_become_the_same_stay_two() -> None:
    keys = [secret.text for secret in CORPUS if secret.kind == "forge"][:3]
    kept = Bounds(Redactor()).fit({key: i for i, key in enumerate(keys)}, 4096, "x")
    assert sorted(kept.values()) == [0, 1, 2]


@pytest.mark.parametrize("secret", CORPUS, ids=lambda s: s.kind)
def test_no_cut_leaves_a_part_of_a_secret(secret: Secret) -> None:
    """Wherever the beginning of a text is cut off, nothing of the secret is left over."""
    behind = " word" * 40
    for keep in range(len(behind), len(behind) + len(secret.text) + 8, 7):
        kept = Bounds(Redactor()).fit("lead " * 1000 + secret.text + behind, keep + 2, "x")
        assert_gone(secret, kept)


def test_it_is_fast() -> None:
    """A 256 KiB bundle of code, logs and the like, in less than 0.1 s of this process's time."""
    lines = [*INNOCENTS, "    return await self._dispatcher.call(account_id, kind, payload)", ""]
    block = "\n".join(lines) + "\n"
    text = (block * (256 * 1024 // len(block) + 1))[: 256 * 1024]
    Redactor().text("warm")
    spent = []
    for _ in range(3):
        start = time.process_time()
        Redactor().text(text)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.1


HOSTILE = [
    "eyJ.", "eyJ", "sk-", "secret", "password=", 'password="', "password: ", "token=$", "xoxb-1-",
    "://a:", "://", "aws", "-----BEGIN " + "PRIVATE KEY-----", "-----END " + "PRIVATE KEY-----\n",
    "A", "a1", " ", "\n", "=", "--a", "authorization: ", "cookie: ", "0123456789", "aws secret ",
    "?sig=", '\\"', "12345678:", "│", '&x-amz-signature=:"', "AAAA\n", "{", "login x password ",
    "jwt=", "sshpass -p", " -u a", "'", "bearer ", "BCDF-", "SG.", "gl",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_makes_it_slow(piece: str) -> None:
    """What the screen of an agent may be full of; a part's texts have 36 KiB at the most."""
    text = (piece * 65536)[: 64 * 1024]
    start = time.process_time()
    Redactor().text(text)
    assert time.process_time() - start < 2


def test_the_library_is_loaded_when_it_is_needed() -> None:
    """It takes 0.15 s and 20 MB: a daemon that nobody asks for a bundle goes without."""
    code = (
        "import sys, outrider.daemon.app, outrider.daemon.debug.bundle;"
        "print('detect_secrets' in sys.modules, 'requests' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.split() == ["False", "False"]
