"""The dashboard in a wheel: built from a clean archive, served without Node.js."""

import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from outrider.daemon.settings import DaemonSettings
from tests.daemon.agents.machine import kill_server
from tests.dashboard.conftest import ROOT
from tests.rig.processes import environment
from tests.rig.stores import SQLite
from tests.system.up import Up

pytestmark = [pytest.mark.dashboard, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean archive of the last commit."""
    folder = tmp_path_factory.mktemp("archive")
    packed = folder / "outrider.tar"
    git = ["git", "-C", str(ROOT), "archive", "--prefix", "outrider/", "--output", str(packed)]
    subprocess.run([*git, "HEAD"], check=True)
    with tarfile.open(packed) as tar:
        tar.extractall(folder, filter="data")
    packed.unlink()
    return folder / "outrider"


@pytest.fixture(scope="module")
def wheel(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the archive."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*pip, str(archive)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_has_the_dashboard_and_none_of_its_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    static = [name for name in names if name.startswith("outrider/cloud/static/")]
    assert "outrider/cloud/static/index.html" in static
    assert any(name.endswith(".js.gz") for name in static)
    sources = (".ts", ".tsx", ".map", "package.json", "package-lock.json")
    assert [name for name in names if name.endswith(sources) or "node_modules" in name] == []
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"outrider"}
    assert wheel.stat().st_size < 10_000_000


async def test_the_wheel_is_served_without_node(
    wheel: Path, tmp_path: Path, sqlite: SQLite
) -> None:
    """In place of the clone's own package, with its dependencies."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "wheel")
    page = (tmp_path / "wheel" / "outrider" / "cloud" / "static" / "index.html").read_text()
    scripts = re.findall(r'src="\./(assets/[^"]+\.js)"', page)
    assert scripts
    (tmp_path / "bin").mkdir()
    for name in ("tmux", "bash", "sh", "git"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    sqlite.migrated(tmp_path / "data")
    env = environment(tmp_path / "data", port="0") | {
        "HOME": str(tmp_path),
        "PATH": str(tmp_path / "bin"),
        "PYTHONPATH": str(tmp_path / "wheel"),
    }
    async with Up("-m", "outrider", "up", env=env) as up:
        await up.greeting()
        served = (await up.client.get(f"{up.url}/")).text
        for script in scripts:
            assert script in served
            assert (await up.client.get(f"{up.url}/{script}")).status_code == 200
        up.signal(signal.SIGINT)
        assert await up.ends() == 0
    kill_server(DaemonSettings(tmp_path / "config").tmux_socket)


def test_a_build_leaves_no_untracked_file(archive: Path, wheel: Path) -> None:
    """As `make up` builds it; a second one has nothing to do, and one after a change has."""
    build = archive / "scripts" / "build-dashboard"
    subprocess.run(["git", "init", "--quiet", archive], check=True)
    git = ["git", "-C", str(archive), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "All"], check=True)
    subprocess.run([build], check=True)
    status = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True)
    assert status.stdout == b""
    again = subprocess.run([build], check=True, capture_output=True)
    assert again.stdout == b""
    page = archive / "web" / "index.html"
    page.write_text(page.read_text().replace("<title>Outrider", "<title>Changed"))
    subprocess.run([build], check=True)
    built = archive / "src" / "outrider" / "cloud" / "static" / "index.html"
    assert "<title>Changed" in built.read_text()
