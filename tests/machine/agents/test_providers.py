"""The providers of a machine: wrong files leave the others alone, changed ones are read again."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.providers import BUILT_IN_TYPES
from outrider.machine.agents.providers import Providers, load_providers
from outrider.machine.link.journal import Journal
from outrider.machine.tmux.server import Tmux

CONTRIB = Path(__file__).parents[3] / "contrib" / "providers"
GOOD = """
type = "mine"
category = "acp"
display_name = "Mine"
command = ["sh"]
install = "-"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "providers").mkdir()
    return tmp_path / "providers"


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "journal.db")
    yield journal
    journal.close()


@pytest.fixture
def providers(folder: Path, journal: Journal) -> Providers:
    return loaded(folder, journal)


def loaded(folder: Path, journal: Journal) -> Providers:
    return load_providers(
        folder.parent, tmux=Tmux("unused"), journal=journal, note_refusal=lambda *_: None
    )


def wrong(providers: Providers) -> dict[str, str]:
    """Return the types that say that their file is wrong, and what they say."""
    described = [provider.describe() for provider in providers.values()]
    errors = {each.type: each.error for each in described if each.error is not None}
    assert errors == providers.errors
    assert not [each for each in described if each.error is not None and each.installed]
    return errors


def test_the_files_of_the_package_and_of_contrib_are_valid(folder: Path, journal: Journal) -> None:
    built_in = loaded(folder, journal).keys()
    for file in CONTRIB.glob("*.toml"):
        shutil.copy(file, folder)
    providers = loaded(folder, journal)
    assert built_in < BUILT_IN_TYPES.keys() == providers.keys()
    assert wrong(providers) == {}
    for kind, (category, name) in BUILT_IN_TYPES.items():
        described = providers[kind].describe()
        assert (described.category, described.display_name) == (category, name)


@pytest.mark.parametrize(
    ("name", "text", "kind", "category"),
    [
        ("mine.toml", GOOD + "colour = 3", "mine", "acp"),
        ("x.toml", GOOD.replace('install = "-"', ""), "mine", "acp"),
        ("x.toml", GOOD.replace("acp", "toaster"), "mine", "cli"),
        ("x.toml", GOOD.replace('"acp"', "7"), "mine", "cli"),
        ("x.toml", GOOD + "command = [", "mine", "cli"),
        ("x.toml", "type = [", "x", "cli"),
        ("x.toml", GOOD.replace('"mine"', "3"), "x", "acp"),
        ("x.toml", GOOD.replace("mine", "../mine"), "x", "acp"),
        ("x.toml", "type = 'codex'\ncommand = []\n", "codex", "cli"),
        ("codex.toml", "nothing of TOML", "codex", "cli"),
        ("x.toml", "type = 'code-server'\nscript = 'none.js'\n", "code-server", "ide"),
    ],
)
def test_an_invalid_file_makes_only_its_type_unusable(
    folder: Path, journal: Journal, name: str, text: str, kind: str, category: str
) -> None:
    (folder / name).write_text(text)
    (folder / "other.toml").write_text(GOOD.replace('"mine"', '"other"'))
    providers = loaded(folder, journal)
    errors = wrong(providers)
    assert errors.keys() == {kind}
    assert errors[kind].startswith(f"{folder / name}: ")
    assert providers.path(kind) == folder / name
    assert providers[kind].describe().category == category
    assert providers["other"].describe().installed
    assert {"claude-code", "other", kind} <= providers.keys()


def test_a_pipe_or_folder_as_provider_file_is_an_error_at_once(
    folder: Path, journal: Journal
) -> None:
    os.mkfifo(folder / "pipe.toml")
    (folder / "folder.toml").mkdir()
    (folder / "gone.toml").symlink_to("nowhere")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    errors = wrong(loaded(folder, journal))
    assert errors.keys() == {"pipe", "folder", "gone", "bytes"}
    assert "not a regular file" in errors["pipe"]


def test_a_type_with_one_invalid_file_of_two_is_unusable(folder: Path, journal: Journal) -> None:
    (folder / "a.toml").write_text("type = 'mine'\n[")
    (folder / "b.toml").write_text(GOOD)
    assert wrong(loaded(folder, journal)).keys() == {"mine"}


class TestRefresh:
    """Files that change while the machine agent runs."""

    async def test_a_refresh_without_a_change_reads_nothing(
        self, folder: Path, journal: Journal
    ) -> None:
        (folder / "mine.toml").write_text(GOOD)
        providers = loaded(folder, journal)
        before = dict(providers)
        assert await providers.refresh() is False
        assert dict(providers) == before

    async def test_a_refresh_reads_new_changed_and_deleted_files(
        self, folder: Path, providers: Providers
    ) -> None:
        file = folder / "mine.toml"
        file.write_text(GOOD)
        assert await providers.refresh() is True
        old = providers["mine"]
        assert old.spec.command == ["sh"]
        file.write_text(GOOD.replace('"sh"', '"bash"'))
        assert await providers.refresh() is True
        assert providers["mine"].spec.command == ["bash"]
        assert old.spec.command == ["sh"]
        file.unlink()
        assert await providers.refresh() is True
        assert "mine" not in providers

    async def test_a_refresh_reads_a_corrected_file(
        self, folder: Path, providers: Providers
    ) -> None:
        file = folder / "mine.toml"
        file.write_text(GOOD + "colour = 3")
        await providers.refresh()
        assert "colour" in wrong(providers)["mine"]
        file.write_text(GOOD)
        await providers.refresh()
        assert wrong(providers) == {}
        assert providers["mine"].describe().installed

    async def test_a_refresh_reads_a_directory_that_was_created_later(
        self, folder: Path, providers: Providers
    ) -> None:
        folder.rmdir()  # noqa: ASYNC240
        await providers.refresh()
        folder.mkdir()  # noqa: ASYNC240
        (folder / "mine.toml").write_text(GOOD)
        assert await providers.refresh() is True
        assert "mine" in providers

    async def test_a_refresh_reads_a_new_script(self, folder: Path, providers: Providers) -> None:
        (folder / "mine.toml").write_text("type = 'code-server'\nscript = 'mine.js'\n")
        await providers.refresh()
        assert wrong(providers).keys() == {"code-server"}
        (folder / "mine.js").write_text("({})")
        await providers.refresh()
        assert wrong(providers) == {}

    async def test_of_simultaneous_refreshes_one_reads(
        self, folder: Path, providers: Providers
    ) -> None:
        (folder / "mine.toml").write_text(GOOD)
        read = await asyncio.gather(*(providers.refresh() for _ in range(5)))
        assert sorted(read) == [False] * 4 + [True]
