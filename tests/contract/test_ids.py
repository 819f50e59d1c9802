"""Ids, derived ids and target ids."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.ids import Prefix, creation_time, derived_id, is_id, new_id
from outrider.contract.targets import Target, parse_target

prefixes = st.sampled_from(get_args(Prefix))
millis = st.integers(0, 2**48 - 1)


@pytest.mark.parametrize("prefix", get_args(Prefix))
def test_a_new_id_is_one_of_its_kind_only(prefix: Prefix) -> None:
    made = new_id(prefix)
    assert made.startswith(f"{prefix}_")
    assert ":" not in made
    assert [kind for kind in get_args(Prefix) if is_id(kind, made)] == [prefix]


def test_new_ids_are_unique_and_sort_by_time() -> None:
    ids = [new_id("msg") for _ in range(1000)]
    assert len(set(ids)) == 1000
    stamps = [made[:14] for made in ids]  # the prefix and the whole letters of the time
    assert stamps == sorted(stamps)


@given(prefixes, millis)
def test_the_creation_time_of_an_id(prefix: Prefix, at: int) -> None:
    assert creation_time(derived_id(prefix, at)) == at


@pytest.mark.parametrize("text", ["", "msg_1", "msg_" + "z" * 26])
def test_what_is_no_id_has_no_creation_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        creation_time(text)


@given(prefixes, st.text())
def test_no_text_breaks_the_check(prefix: Prefix, text: str) -> None:
    assert not is_id(prefix, text)
    assert not is_id(prefix, f"{prefix}_{text}") or len(text) == 26


@given(prefixes, st.integers(), st.lists(st.text(), max_size=3))
def test_a_derived_id_is_well_formed_and_always_the_same(
    prefix: Prefix, at: int, parts: list[str]
) -> None:
    made = derived_id(prefix, at, *parts)
    assert is_id(prefix, made)
    assert derived_id(prefix, at, *parts) == made


@given(
    millis, st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1, max_size=3),
    millis, st.lists(st.text(st.characters(exclude_characters="\0")), min_size=1, max_size=3),
)  # fmt: skip
def test_derived_ids_differ_where_anything_does(
    at: int, parts: list[str], other_at: int, other_parts: list[str]
) -> None:
    same = (at, parts) == (other_at, other_parts)
    assert (derived_id("msg", at, *parts) == derived_id("msg", other_at, *other_parts)) is same


@given(millis, millis)
def test_derived_ids_sort_by_time(first: int, other: int) -> None:
    early, late = sorted([first, other])
    if early < late:
        assert derived_id("msg", early, "x") < derived_id("msg", late, "x")


@given(
    st.text(st.characters(exclude_characters=":"), min_size=1),
    st.sampled_from(["ide", "cli", "acp", "session"]),
    st.text(min_size=1),
)
def test_a_target_goes_round(daemon_id: str, kind: str, name: str) -> None:
    text = f"{daemon_id}:{kind}:{name}"
    target = parse_target(text)
    assert target == (daemon_id, kind, name)
    assert str(target) == text


@pytest.mark.parametrize(
    "text",
    ["", "machine_1", "machine_1:", "machine_1:cli", "machine_1:cli:", ":cli:x", "m:vscode:x"],
)
def test_what_is_not_a_target_is_none(text: str) -> None:
    assert parse_target(text) is None


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    target = parse_target(text)
    assert target is None or (isinstance(target, Target) and str(target) == text)
