"""Every secret is replaced, and a text that only looks like a secret is unchanged."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.machine.debug.bounds import Bounds
from outrider.machine.redaction.redactor import DETECTORS, Redactor
from outrider.machine.redaction.scan import AnchoredDetector
from outrider.machine.redaction.secret_names import is_secret_name
from tests.machine.redaction.corpus import Secret, hostile, innocents, secrets, unfinished

CORPUS = secrets()
INNOCENTS = innocents()
HOSTILE = hostile()

# One test for each kind of secret, not for each of 400 secrets: collecting a test takes longer
# than redacting a text. What fails is named by the assertion.
KINDS = sorted({secret.kind for secret in CORPUS})


def of_kind(kind: str) -> list[Secret]:
    return [secret for secret in CORPUS if secret.kind == kind]


def redacted(text: str) -> str:
    return Redactor().text(text)


def assert_gone(secret: Secret, text: str) -> None:
    """Fail where the secret, or any third of one that is long, is left."""
    third = max(6, len(secret.hidden) // 3)
    pieces = [secret.hidden[i : i + third] for i in range(0, len(secret.hidden) - third + 1, 3)]
    left = [piece for piece in (secret.hidden, *pieces) if piece in text]
    assert not left, f"{secret.kind}: {secret.text!r} became {text!r}"


def test_the_corpus_has_enough_different_secrets_and_innocent_texts() -> None:
    assert len(CORPUS) >= 400
    assert len({secret.kind for secret in CORPUS}) >= 16
    assert len({secret.hidden for secret in CORPUS}) == len(CORPUS)
    assert len(set(INNOCENTS)) >= 250


@pytest.mark.parametrize("around", ["{}", "see {} there", "a\n{}\nb", '"{}"', "│ {} │"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_in_a_text_is_replaced(kind: str, around: str) -> None:
    for secret in of_kind(kind):
        redactor = Redactor()
        text = redactor.text(around.replace("{}", secret.text))
        assert_gone(secret, text)
        assert redactor.counts.total() >= 1, secret
        assert Redactor().text(text) == text, f"redacted twice, {secret} is another text"


LONG = [
    secret
    for secret in CORPUS
    if secret.text == secret.hidden and len(secret.text) >= 70 and "\n" not in secret.text
]


@pytest.mark.parametrize("edges", [("", ""), ("  ", ""), ("│ ", " │")])
@pytest.mark.parametrize("secret", LONG, ids=lambda s: s.kind)
def test_a_token_that_a_screen_has_wrapped_is_replaced(
    secret: Secret, edges: tuple[str, str]
) -> None:
    left, right = edges
    pieces = [secret.text[i : i + 48] for i in range(0, len(secret.text), 48)]
    shown = "\n".join(f"{left}{piece}{right}" for piece in ["it is", *pieces, "and so on"])
    text = redacted(shown)
    assert not [piece for piece in pieces if len(piece) >= 20 and piece in text]
    assert f"{left}it is{right}" in text
    assert f"{left}and so on{right}" in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_anywhere_in_json_is_replaced(kind: str) -> None:
    for secret in of_kind(kind):
        value = {
            "deep": [{"list": ["x", {"text": f"it is {secret.text}"}]}],
            secret.text: None,
            "inJson": json.dumps({"body": json.dumps({"x": secret.text})}),
        }
        bounds = Bounds(Redactor())
        kept = json.dumps(bounds.fit(value, 64 * 1024, "frontendSnapshot"), ensure_ascii=False)
        if "\n" not in secret.hidden and "\\" not in secret.text:
            assert_gone(secret, kept)
        assert not bounds.omitted, secret


@pytest.mark.parametrize("around", ["{}", "see {} there", "a\n{}\nb", '"{}"', "({})"])
def test_a_text_without_a_secret_is_unchanged(around: str) -> None:
    for innocent in INNOCENTS:
        redactor = Redactor()
        text = around.replace("{}", innocent)
        assert redactor.text(text) == text
        assert not redactor.counts, innocent


@pytest.mark.parametrize("around", ["{}", "a\n{}\nb", "a\n{}\n\nnext line 2"])
def test_the_line_after_a_name_without_a_value_is_unchanged(around: str) -> None:
    for line in unfinished():
        text = around.replace("{}", line)
        assert redacted(text) == text


def test_json_without_a_secret_is_unchanged() -> None:
    for innocent in INNOCENTS:
        key = "key" if is_secret_name(innocent) else innocent[:200]
        value = {"items": [innocent], key: {"value": innocent}}
        assert Bounds(Redactor()).fit(value, 4096, "x") == value


@pytest.mark.parametrize(
    "name",
    ["password", "dbPassword", "DB_PASSWORD", "user-password", "apiKey", "API_KEY", "x-api-key",
     "accessToken", "refresh_token", "Authorization", "set-cookie", "clientSecret", "private_key",
     "deviceCode", "user_code", "credentials", "connectionString", "AWS_SECRET_ACCESS_KEY"],
)  # fmt: skip
def test_everything_below_a_secret_name_is_replaced(name: str) -> None:
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
def test_a_number_below_another_name_is_unchanged(name: str) -> None:
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
def test_the_value_beside_a_secret_name_is_replaced(value: Any) -> None:
    assert "plainword" not in json.dumps(Bounds(Redactor()).fit(value, 4096, "x"))


def test_two_keys_that_become_equal_are_both_kept() -> None:
    keys = [secret.text for secret in CORPUS if secret.kind == "forge"][:3]
    kept = Bounds(Redactor()).fit({key: i for i, key in enumerate(keys)}, 4096, "x")
    assert sorted(kept.values()) == [0, 1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_is_cut_in_a_secret_has_no_part_of_it(kind: str) -> None:
    """Wherever the beginning of a text is cut off, nothing of the secret is left over."""
    behind = " word" * 40
    for number, secret in enumerate(of_kind(kind)):
        # Each third secret of a kind has the same cuts: the kind has all of them.
        first = len(behind) + number % 3 * 7
        for keep in range(first, len(behind) + len(secret.text) + 8, 21):
            kept = Bounds(Redactor()).fit("lead " * 1000 + secret.text + behind, keep + 2, "x")
            assert_gone(secret, kept)


MOST_PER_CHARACTER = 3000
"""How many characters are examined for each of a text, at the most: 300 anchors and the windows,
twice in a text with escapes, twice in one with moves of the cursor."""


def examined(text: str) -> int:
    """Return how many characters were looked at to redact a text."""
    redactor = Redactor()
    redactor.text(text)
    return redactor.examined


class TestCost:
    """What is counted is the characters that patterns are given, so load changes nothing."""

    @pytest.mark.parametrize("piece", HOSTILE)
    def test_of_a_hostile_text_grows_with_its_length(self, piece: str) -> None:
        """What the screen of an agent may be full of."""
        short, long = ((piece * size)[:size] for size in (1024, 4096))
        assert examined(long) <= MOST_PER_CHARACTER * len(long)
        assert examined(long) / len(long) <= 1.5 * examined(short) / len(short)

    def test_of_each_anchor_grows_with_the_length(self) -> None:
        anchors = {
            a for form in DETECTORS if isinstance(form, AnchoredDetector) for a in form.anchors
        }
        assert len(anchors) > 200
        for anchor in sorted(anchors):
            short, long = ((anchor * size)[:size] for size in (512, 2048))
            assert examined(long) <= MOST_PER_CHARACTER * len(long)
            assert examined(long) / len(long) <= 1.5 * examined(short) / len(short)

    @pytest.mark.fuzz
    @given(
        pieces=st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4)), min_size=1),
        repeated=st.booleans(),
    )
    def test_of_any_mixture_is_bounded(self, pieces: list[str], repeated: bool) -> None:
        tail = "".join(pieces[1:]) or "a"
        text = (("".join(pieces) * 2048) if repeated else pieces[0] + tail * 2048)[:4096]
        assert examined(text) <= MOST_PER_CHARACTER * max(len(text), 1)

    def test_of_ordinary_text_is_a_quarter_of_the_bound(self) -> None:
        code = "    return await self._dispatcher.call(account_id, kind, payload)"
        block = "\n".join([*INNOCENTS, code, ""])
        text = (block * (64 * 1024 // len(block) + 1))[: 64 * 1024]
        assert examined(text) <= MOST_PER_CHARACTER / 4 * len(text)


@pytest.mark.fuzz
@given(
    places=st.lists(st.tuples(st.sampled_from(CORPUS), st.text(" \n\t.;", min_size=1)), max_size=6),
    seed=st.integers(),
)
def test_secrets_among_others_and_cut_by_colours_are_replaced(
    places: list[tuple[Secret, str]], seed: int
) -> None:
    chance = random.Random(seed)
    text = "\n"
    for secret, behind in places:
        shown = secret.text
        if secret.kind != "split" and "\n" not in shown:
            at = chance.randrange(len(shown) + 1)
            shown = f"{shown[:at]}\x1b[{chance.randrange(30, 50)}m{shown[at:]}"
        text += f"{shown}\n\n{behind}\n"
    left = Redactor().text(text)
    for secret, _ in places:
        assert secret.hidden not in left
