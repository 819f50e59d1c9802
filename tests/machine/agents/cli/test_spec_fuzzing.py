"""Fuzzing of provider files: each one is either used or refused with a readable error."""

import json
import tempfile
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.contract.providers import BUILT_IN_TYPES
from outrider.machine.agents.cli.screen import ScreenRules
from outrider.machine.agents.cli.spec import CliSpec
from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY
from outrider.machine.agents.providers import Providers, load_providers
from outrider.machine.link.journal import Journal
from outrider.machine.tmux.server import Tmux

pytestmark = pytest.mark.fuzz

TABLES = {
    path.name: tomllib.loads(path.read_text()) for path in sorted(BUILT_IN_DIRECTORY.glob("*.toml"))
}
SCREENS = [
    path.read_text() for path in sorted(Path(__file__).with_name("captures").rglob("idle.txt"))
]

# Without `(`, `*` and `+`, of which a pattern can be made that takes for ever.
texts = st.text("ab1.^$[]{}|?\\-_ /'\"=\0\x1b\né🎉", max_size=12)
names = st.one_of(
    st.sampled_from(
        ["type", "category", "command", "args", "install", "rules", "dialog", "agents"]
    ),
    st.sampled_from(["environment", "set", "unset", "input", "hints", "match", "text", "script"]),
    texts,
)
scalars = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.sampled_from(["cli", "acp", "ide", "codex", "claude-code", "waiting_approval", "idle"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def toml(value: Any) -> str:
    """Return a value as TOML; a table is an inline one."""
    match value:
        case dict():
            return "{" + ", ".join(f"{toml(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)


def document(table: dict[str, Any]) -> str:
    return "\n".join(f"{toml(str(name))} = {toml(value)}" for name, value in table.items())


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path to every value in a table."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return what is at a path."""
    for key in path:
        value = value[key]
    return value


def replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    """Return a copy of a value in which what is at a path is another value."""
    if not path:
        return new
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def check(files: dict[str, bytes]) -> Providers:
    """Load these files beside the built-in ones, and see that what is right can be used."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "providers").mkdir()
        for file, content in files.items():
            (folder / "providers" / file).write_bytes(content)
        journal = Journal(folder / "journal.db")
        try:
            providers = load_providers(
                folder,
                tmux=Tmux("unused"),
                journal=journal,
                note_refusal=lambda *_: None,
                environment={"PATH": "/usr/bin:/bin", "HOME": name},
            )
        finally:
            journal.close()
        assert "claude-code" in providers
        assert len(providers.errors) <= len(files)
        for kind, provider in providers.items():
            described = provider.describe()
            assert (described.type, described.error) == (kind, providers.errors.get(kind))
            assert described.display_name.isprintable()
            assert len(described.display_name) <= 256
            if described.error is not None:
                assert described.error.isprintable()
                assert len(described.error) < 1000
                assert str(providers.path(kind)) in described.error
                continue
            spec = provider.spec
            environment = spec.environment_from({"A": "b"})
            words = [*spec.command, *spec.args, *spec.model_args, *chain(*environment.items())]
            assert not [word for word in words if "\0" in word]
            assert not [name for name in environment if not name or "=" in name]
            if isinstance(spec, CliSpec) and kind not in BUILT_IN_TYPES:
                judge = ScreenRules(spec)
                for screen in SCREENS:
                    judge.read(screen, "a title")
        return providers


@given(content=st.one_of(st.binary(max_size=200), texts.map(str.encode)))
def test_any_bytes(content: bytes) -> None:
    check({"any.toml": content})


@given(table=st.dictionaries(names, values, max_size=6))
def test_any_table(table: dict[str, Any]) -> None:
    check({"any.toml": document(table).encode()})


@given(data=st.data(), file=st.sampled_from(sorted(TABLES)), new=values, own=st.booleans())
def test_a_built_in_file_with_a_mistake(
    data: st.DataObject, file: str, new: Any, own: bool
) -> None:
    table = TABLES[file] | ({"type": "mine"} if own else {})
    path = data.draw(st.sampled_from(places(table)[1:]))
    changed = replaced(table, path, new)
    providers = check({"mine.toml": document(changed).encode()})
    assert providers.errors.keys() <= {"mine", TABLES[file]["type"], str(changed.get("type"))}


def test_a_table_is_written_as_it_is() -> None:
    for table in TABLES.values():
        assert tomllib.loads(document(table)) == table
