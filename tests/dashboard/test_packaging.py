"""A release: reproducible, complete, with the dashboard, and served without Node.js."""

import json
import re
import shutil
import signal
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from outrider import __version__
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


def build(dist: Path) -> dict[str, bytes]:
    """Build a release of the last commit; return its files."""
    subprocess.run([str(ROOT / "scripts" / "build-dist"), str(dist)], check=True)
    return {path.name: path.read_bytes() for path in dist.iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that `make dist` makes."""
    folder = tmp_path_factory.mktemp("release")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    """The wheel of the release."""
    (wheel,) = release.glob("*.whl")
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


def test_two_builds_are_equal(release: Path, tmp_path: Path) -> None:
    """All of them: sdist, wheel, SBOM and checksums."""
    first = {path.name: path.read_bytes() for path in release.iterdir()}
    second = build(tmp_path)
    assert sorted(second) == [
        "SHA256SUMS",
        f"outrider-{__version__}-py3-none-any.whl",
        f"outrider-{__version__}.cdx.json",
        f"outrider-{__version__}.tar.gz",
    ]
    assert [name for name in first if first[name] != second.get(name)] == []


def test_the_checksums_are_those_of_the_files(release: Path) -> None:
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    checked = subprocess.run(command, cwd=release, check=True, capture_output=True, text=True)
    assert checked.stdout.count(": OK") == len(list(release.iterdir())) - 1


def test_the_sbom_names_what_is_installed_and_what_is_bundled(release: Path) -> None:
    sbom = json.loads((release / f"outrider-{__version__}.cdx.json").read_text())
    root = sbom["metadata"]["component"]
    assert (root["name"], root["version"]) == ("outrider", __version__)
    packages = {component["purl"] for component in sbom["components"]}
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    assert f"pkg:pypi/starlette@{pinned['starlette']}" in packages
    react = json.loads((ROOT / "web" / "package.json").read_text())["dependencies"]["react"]
    assert f"pkg:npm/react@{react}" in packages
    assert [one for one in packages if "pytest" in one or "npm/vite@" in one] == []
    assert str(ROOT) not in json.dumps(sbom)


def test_the_wheel_of_the_sdist_is_the_same(release: Path, wheel: Path, tmp_path: Path) -> None:
    """Built without Node.js: the sdist brings the dashboard."""
    (sdist,) = release.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(tmp_path, filter="data")
        newest = max(int(member.mtime) for member in tar)
    (folder,) = tmp_path.iterdir()
    python = ROOT / ".cache" / "dist" / "bin" / "python"
    command = [str(python), "-m", "hatchling", "build", "-t", "wheel"]
    env = {"PATH": str(tmp_path / "nothing"), "SOURCE_DATE_EPOCH": str(newest)}
    subprocess.run(command, cwd=folder, env=env, check=True)
    (again,) = (folder / "dist").glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_a_build_leaves_no_untracked_file(archive: Path) -> None:
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
