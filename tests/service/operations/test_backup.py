"""Backup and restore of a service on SQLite."""

import asyncio
import os
import signal
import sqlite3
import stat
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import msgspec
import pytest
import pytest_asyncio

from outrider.service.accounts.encryption import key_file
from outrider.service.database.engine import HEAD
from outrider.service.operations import backup
from outrider.service.operations.backup import BackupError, Description
from outrider.service.operations.installation import InstallationError
from outrider.service.settings import Settings
from tests.conftest import running, settings
from tests.rig.people import dashboard, person
from tests.rig.processes import PROCESS_TIMEOUT, Program, environment
from tests.rig.site import Site
from tests.rig.stores import SQLite, damage_table
from tests.rig.waiting import TIMEOUT, eventually

KEY = "k" * 32


@pytest_asyncio.fixture(loop_scope="session")
async def served(sqlite: SQLite, tmp_path: Path) -> AsyncIterator[Site]:
    """A running service of the test's own."""
    async with running(settings(tmp_path / "data", sqlite)) as site, site.visit():
        yield site


@pytest.fixture
def stopped(sqlite: SQLite, tmp_path: Path) -> Settings:
    """The settings of a service that does not run."""
    chosen = settings(tmp_path / "data", sqlite)
    key_file(chosen.data_dir).write_text(KEY + "\n")
    key_file(chosen.data_dir).chmod(0o600)
    return chosen


@pytest.fixture
def made(stopped: Settings, tmp_path: Path) -> Path:
    """A backup of that service."""
    backup.create(stopped, tmp_path / "backup")
    return tmp_path / "backup"


def elsewhere(chosen: Settings, tmp_path: Path) -> Settings:
    return chosen.model_copy(update={"data_dir": tmp_path / "elsewhere"})


def contents(directory: Path) -> dict[str, bytes]:
    """Return what every file but the lock holds."""
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.suffix != ".lock" and path.is_file()
    }


def query(database: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(statement).fetchall()


def rewrite(file: Path, **changes: object) -> None:
    """Change the description of a backup."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    described = msgspec.json.decode(members["backup.json"], type=Description)
    members["backup.json"] = msgspec.json.encode(msgspec.structs.replace(described, **changes))
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


async def created(api: httpx.AsyncClient, number: int) -> str:
    """Create a webhook; return its id."""
    body = {"url": f"https://example.org/{number}", "events": ["*"]}
    answer = await api.post("/api/v1/webhooks", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.asyncio(loop_scope="session")
class TestWhileTheServiceWrites:
    async def test_what_was_answered_before_is_restored(
        self, served: Site, sqlite: SQLite, tmp_path: Path
    ) -> None:
        owner = await person(served)
        api = await dashboard(owner)
        written: list[str] = []
        stop = asyncio.Event()

        async def write() -> None:
            while not stop.is_set():
                written.append(await created(api, len(written)))

        async with asyncio.timeout(2 * TIMEOUT), asyncio.TaskGroup() as group:
            group.create_task(write())
            await eventually(lambda: len(written) > 5)
            before = len(written)
            file = tmp_path / "backup"
            await asyncio.to_thread(backup.create, served.settings, file)
            copied = len(written)
            await eventually(lambda: len(written) > copied + 5)
            stop.set()

        restored = served.settings.model_copy(update={"data_dir": tmp_path / "restored"})
        backup.restore(restored, file)
        async with running(restored) as other, other.visit():
            answer = await other.client(owner.key).get("/api/v1/webhooks")
            restored_ids = {webhook["id"] for webhook in answer.json()["webhooks"]}
            # A snapshot: everything up to some point, which lies within the time of the copy.
            assert restored_ids == set(written[: len(restored_ids)])
            assert before <= len(restored_ids) <= copied + 1
        assert (
            key_file(restored.data_dir).read_text()
            == key_file(served.settings.data_dir).read_text()
        )

    async def test_it_is_not_restored_over_a_running_service(
        self, served: Site, tmp_path: Path
    ) -> None:
        owner = await served.account()
        backup.create(served.settings, tmp_path / "backup")
        with pytest.raises(InstallationError, match=f"process {os.getpid()}"):
            backup.restore(served.settings, tmp_path / "backup", overwrite=True)
        assert (await owner.api.get("/api/v1/daemons")).status_code == 200


class TestFile:
    def test_only_its_owner_may_read_it(self, made: Path) -> None:
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        assert list(made.parent.glob(".*")) == []

    def test_a_file_that_exists_is_kept(self, stopped: Settings, made: Path) -> None:
        before = made.read_bytes()
        with pytest.raises(BackupError, match="--force"):
            backup.create(stopped, made)
        assert made.read_bytes() == before
        backup.create(stopped, made, overwrite=True)
        assert made.read_bytes() != before
        assert stat.S_IMODE(made.stat().st_mode) == 0o600

    def test_a_missing_directory_is_an_error(self, stopped: Settings, tmp_path: Path) -> None:
        with pytest.raises(BackupError, match="cannot be written"):
            backup.create(stopped, tmp_path / "missing" / "backup")

    def test_without_a_database_nothing_is_written(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(BackupError, match="There is no database"):
            backup.create(Settings(data_dir=tmp_path / "empty"), tmp_path / "backup")
        assert list((tmp_path / "empty").iterdir()) == []

    def test_a_database_of_another_program_is_refused(
        self, stopped: Settings, tmp_path: Path
    ) -> None:
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("CREATE TABLE things (id)")
        other = stopped.model_copy(update={"database_url": f"sqlite:///{tmp_path}/other.db"})
        with pytest.raises(BackupError, match="not a database of Outrider"):
            backup.create(other, tmp_path / "backup")

    def test_a_postgresql_has_its_own_tools(self, tmp_path: Path) -> None:
        chosen = Settings(data_dir=tmp_path, database_url="postgresql://a:hunter2@db/x")
        with pytest.raises(BackupError, match="pg_dump"):
            backup.create(chosen, tmp_path / "backup")
        with pytest.raises(BackupError, match="pg_restore"):
            backup.restore(chosen, tmp_path / "backup")


class TestDamagedDatabase:
    def test_it_is_not_backed_up_and_the_backup_that_is_there_stays(
        self, stopped: Settings, made: Path
    ) -> None:
        before = made.read_bytes()
        damage_table(stopped.data_dir / "outrider.db", "accounts")
        with pytest.raises(BackupError, match="is damaged, so no backup was made"):
            backup.create(stopped, made, overwrite=True)
        assert made.read_bytes() == before
        assert list(made.parent.glob(".*")) == []

    def test_of_a_file_that_is_no_database_there_is_no_backup(
        self, stopped: Settings, tmp_path: Path
    ) -> None:
        (stopped.data_dir / "outrider.db").write_bytes(b"x" * 8192)
        with pytest.raises(BackupError, match="is damaged, so no backup was made"):
            backup.create(stopped, tmp_path / "backup")
        assert not (tmp_path / "backup").exists()


class TestKilled:
    async def test_the_next_backup_removes_what_a_killed_one_left(
        self, stopped: Settings, tmp_path: Path
    ) -> None:
        async with blocked_backup(stopped, tmp_path) as (killed, _):
            killed.signal(signal.SIGKILL)
            await killed.ends()
        assert hidden(tmp_path) != []
        backup.create(stopped, tmp_path / "backup")
        assert hidden(tmp_path) == []

    async def test_what_a_running_one_needs_and_files_of_others_stay(
        self, stopped: Settings, sqlite: SQLite, tmp_path: Path
    ) -> None:
        other = settings(tmp_path / "other", sqlite, secret_key=KEY)
        (tmp_path / ".outrider-copy-of-others").touch()
        async with blocked_backup(stopped, tmp_path) as (blocked, release):
            before = hidden(tmp_path)
            backup.create(other, tmp_path / "other.zip")
            assert hidden(tmp_path) == before
            release()
            assert await blocked.ends() == 0
        assert hidden(tmp_path) == [".outrider-copy-of-others"]
        assert zipfile.is_zipfile(tmp_path / "blocked")


@asynccontextmanager
async def blocked_backup(
    chosen: Settings, directory: Path
) -> AsyncIterator[tuple[Program, Callable[[], None]]]:
    """Start a backup that waits for the database until the function that is given is called."""
    arguments = ("-m", "outrider", "backup", str(directory / "blocked"))
    database = sqlite3.connect(chosen.data_dir / "outrider.db", isolation_level=None)
    with closing(database) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        async with Program(*arguments, env=environment(chosen.data_dir)) as program:
            await eventually(lambda: has_lock(directory), PROCESS_TIMEOUT)
            yield program, connection.close


def hidden(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(".*"))


def has_lock(directory: Path) -> bool:
    return any((directory / name / "lock").exists() for name in hidden(directory))


class TestRestore:
    def test_over_data_it_needs_to_be_told_and_keeps_what_was_there(
        self, stopped: Settings, made: Path
    ) -> None:
        database = stopped.data_dir / "outrider.db"
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("CREATE TABLE later (id)")
            before = contents(stopped.data_dir)
            with pytest.raises(BackupError, match="--force"):
                backup.restore(stopped, made)
            assert contents(stopped.data_dir) == before
            # The connection is open, as after a crash: a part of the data is in the -wal.
            _, previous = backup.restore(stopped, made, overwrite=True)
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'later'"
        assert query(database, tables) == [(0,)]
        (kept,) = [
            path
            for path in previous
            if path.name.startswith("outrider.db.before-restore-") and path.name.endswith("Z")
        ]
        assert query(kept, tables) == [(1,)]
        assert [path.read_text() for path in previous if "secret" in path.name] == [KEY + "\n"]

    def test_its_files_are_private(self, stopped: Settings, made: Path, tmp_path: Path) -> None:
        new = elsewhere(stopped, tmp_path)
        description, previous = backup.restore(new, made)
        assert (description.schema, previous) == (HEAD, [])
        assert key_file(new.data_dir).read_text() == KEY + "\n"
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in new.data_dir.iterdir()}
        assert modes == {"outrider.db": 0o600, "outrider.db.lock": 0o600, "secret.key": 0o600}

    def test_the_account_of_up_is_restored(self, stopped: Settings, tmp_path: Path) -> None:
        (stopped.data_dir / "local.json").write_text("{}")
        backup.create(stopped, tmp_path / "backup")
        new = elsewhere(stopped, tmp_path)
        backup.restore(new, tmp_path / "backup")
        assert (new.data_dir / "local.json").read_text() == "{}"

    @pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
    def test_a_truncated_file_changes_nothing(
        self, stopped: Settings, made: Path, part: float
    ) -> None:
        data = made.read_bytes()
        made.write_bytes(data[: int(part * len(data))])
        self._refused(stopped, made, "not a backup of Outrider, or it is damaged")

    def test_a_flipped_byte_changes_nothing(self, stopped: Settings, made: Path) -> None:
        data = bytearray(made.read_bytes())
        data[len(data) // 2] ^= 0xFF
        made.write_bytes(data)
        self._refused(stopped, made, "damaged")

    def test_files_of_other_programs_are_refused(
        self, stopped: Settings, made: Path, tmp_path: Path
    ) -> None:
        made.write_text("not a zip\n")
        self._refused(stopped, made, "not a backup")
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr("backup.json", "[]")
        self._refused(stopped, made, "not a backup")
        self._refused(stopped, tmp_path / "missing", "cannot be read")

    def test_a_newer_one_is_refused(self, stopped: Settings, made: Path) -> None:
        rewrite(made, schema="9999", version="99.0")
        self._refused(stopped, made, r"newer Outrider \(99\.0, schema 9999.*update this one")

    def test_a_description_that_is_not_the_databases_is_refused(
        self, stopped: Settings, made: Path
    ) -> None:
        rewrite(made, schema="0001")
        self._refused(stopped, made, "damaged")

    def _refused(self, chosen: Settings, file: Path, why: str) -> None:
        before = contents(chosen.data_dir)
        with pytest.raises(BackupError, match=why):
            backup.restore(chosen, file, overwrite=True)
        assert contents(chosen.data_dir) == before
        assert list(chosen.data_dir.glob(".*")) == []


class TestSecretKey:
    def test_one_of_the_settings_is_not_in_it_and_must_be_the_same(
        self, stopped: Settings, tmp_path: Path
    ) -> None:
        key_file(stopped.data_dir).unlink()
        with_setting = stopped.model_copy(update={"secret_key": "s" * 32})
        file = tmp_path / "backup"
        assert not backup.create(with_setting, file).has_secret_key
        assert b"s" * 32 not in file.read_bytes()
        new = elsewhere(stopped, tmp_path)
        with pytest.raises(BackupError, match="set it to the same key"):
            backup.restore(new, file)
        with pytest.raises(BackupError, match="another secret key"):
            backup.restore(new.model_copy(update={"secret_key": "t" * 32}), file)
        assert not new.data_dir.exists()
        backup.restore(new.model_copy(update={"secret_key": "s" * 32}), file)
        assert not key_file(new.data_dir).exists()

    def test_a_key_file_that_is_not_used_stays(self, stopped: Settings, tmp_path: Path) -> None:
        with_setting = stopped.model_copy(update={"secret_key": "s" * 32})
        file = tmp_path / "backup"
        backup.create(with_setting, file)
        before = key_file(stopped.data_dir).read_bytes()
        _, moved = backup.restore(with_setting, file, overwrite=True)
        assert key_file(stopped.data_dir).read_bytes() == before
        assert not any(path.name.startswith("secret.key") for path in moved)

    def test_without_it_there_is_no_backup(self, stopped: Settings, tmp_path: Path) -> None:
        key_file(stopped.data_dir).unlink()
        with pytest.raises(BackupError, match="no secret key"):
            backup.create(stopped, tmp_path / "backup")
        assert not key_file(stopped.data_dir).exists()
