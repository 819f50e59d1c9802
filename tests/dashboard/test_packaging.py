"""A release: reproducible, complete, with the dashboard; installed, it needs no Node.js."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider import __version__
from outrider.machine.settings import Connection, DaemonSettings
from outrider.sdk import AsyncOutrider
from tests.dashboard.conftest import ROOT
from tests.machine.agents.machine import kill_server
from tests.rig.processes import PROCESS_TIMEOUT, Program, environment, outrider
from tests.rig.site import Owner, Site
from tests.rig.waiting import eventually
from tests.system.up import Up

pytestmark = [pytest.mark.dashboard, pytest.mark.timeout(900)]


def archive(folder: Path) -> Path:
    """Make a clean archive of the last commit in a folder; return its directory."""
    packed = folder / "outrider.tar"
    git = ["git", "-C", str(ROOT), "archive", "--prefix", "outrider/", "--output", str(packed)]
    subprocess.run([*git, "HEAD"], check=True)
    with tarfile.open(packed) as tar:
        tar.extractall(folder, filter="data")
    packed.unlink()
    return folder / "outrider"


def build(dist: Path, work: Path) -> dict[str, bytes]:
    """Build a release of an archive; return its files."""
    subprocess.run([ROOT / "scripts" / "build-dist", dist, work], check=True)
    return {path.name: path.read_bytes() for path in dist.iterdir()}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that the release is built from."""
    return archive(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory, work: Path) -> Path:
    """The directory that `make dist` makes."""
    folder = tmp_path_factory.mktemp("release")
    build(folder, work)
    return folder


@pytest.fixture(scope="module")
def installed(release: Path, work: Path) -> Path:
    """The interpreter of an environment with the wheel and the packages that it requires."""
    assert list(release.iterdir())
    return work / "installed" / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(release: Path) -> Path:
    """The wheel of the release."""
    (wheel,) = release.glob("*.whl")
    return wheel


def test_the_wheel_has_the_dashboard_and_none_of_its_sources(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    static = [name for name in names if name.startswith("outrider/service/static/")]
    assert "outrider/service/static/index.html" in static
    assert any(name.endswith(".js.gz") for name in static)
    sources = (".ts", ".tsx", ".map", "package.json", "package-lock.json")
    assert [name for name in names if name.endswith(sources) or "node_modules" in name] == []
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"outrider"}
    assert wheel.stat().st_size < 10_000_000


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment of a new user, without Node.js and a compiler."""
    (tmp_path / "bin").mkdir()
    for name in ("tmux", "bash", "sh", "git"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    bare = environment(tmp_path / "data", port="0")
    bare.pop("PYTHONPATH", None)
    bare.pop("VIRTUAL_ENV", None)
    yield bare | {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin")}
    kill_server(DaemonSettings(tmp_path / "config").tmux_socket)


async def test_a_bare_environment(
    installed: Path, wheel: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    """The wheel as a new user has it: the dashboard is served, and the demo agent answers."""
    page = zipfile.ZipFile(wheel).read("outrider/service/static/index.html").decode()
    scripts = re.findall(r'src="\./(assets/[^"]+\.js)"', page)
    assert scripts
    async with Up("-m", "outrider", "up", "--no-browser", env=bare, python=installed) as up:
        await up.greeting()
        served = (await up.client.get(f"{up.url}/")).text
        for script in scripts:
            assert script in served
            assert (await up.client.get(f"{up.url}/{script}")).status_code == 200
        await answers_hello(up.url, up.key, tmp_path)
        up.signal(signal.SIGINT)
        assert await up.ends() == 0


async def answers_hello(url: str, key: str, folder: Path) -> None:
    """Check that the demo agent of the only machine answers, as soon as that is connected."""
    async with AsyncOutrider(url, key) as client:

        async def is_connected() -> bool:
            return len(await client.machines.list()) == 1

        await eventually(is_connected, PROCESS_TIMEOUT)
        (machine,) = await client.machines.list()
        agent = await machine.launch("demo", dir=str(folder))
        reply = await agent.ask("hello", timeout=PROCESS_TIMEOUT)
        assert reply.text.endswith("You said: hello")
        await agent.stop()


@pytest.fixture
def agent_alone(release: Path, wheel: Path, tmp_path: Path) -> Path:
    """The interpreter of an environment with the machine agent's requirements only."""
    (requirements,) = release.glob("*-agent.txt")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--requirement", requirements, wheel], check=True)
    return python


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.one_store
async def test_the_machine_agent_alone(
    agent_alone: Path, bare: dict[str, str], owner: Owner, site: Site, tmp_path: Path
) -> None:
    """Its requirements are enough for it and for the commands of people, and are not all."""
    python = agent_alone
    enrolled = await owner.enrolls(nickname="alone")
    DaemonSettings(tmp_path / "config").save_connection(
        Connection(
            server=site.url, daemon_id=enrolled.daemon_id, token=enrolled.token, nickname="alone"
        )
    )
    async with Program("-m", "outrider", "daemon", env=bare, python=python) as daemon:
        await answers_hello(site.url, owner.key, tmp_path)
        person = bare | {"OUTRIDER_URL": site.url, "OUTRIDER_API_KEY": owner.key}
        for command in ("ls", "providers list", "uninstall", "upgrade"):
            outcome = await outrider(*command.split(), env=person, python=python)
            assert (outcome.code, outcome.err) == (0, ""), command
        assert "--no-deps --requirement outrider-VERSION-agent.txt" in outcome.out
        examined = await outrider("doctor", "--json", env=person, python=python)
        assert "Report this" not in examined.out + examined.err
        assert json.loads(examined.out)["checks"]
        daemon.signal(signal.SIGTERM)
        assert await daemon.ends() == 0
    for command in ("serve", "up", "backup x", "admin migrate"):
        refused = await outrider(*command.split(), env=bare, python=python)
        assert "install all of Outrider" in refused.assert_sentence(), command


def test_two_builds_are_equal(release: Path, tmp_path: Path) -> None:
    """All files of the release, although the second dashboard is built as `make up` does it.

    That build leaves no untracked file, and has nothing to do before a source has changed.
    """
    folder = archive(tmp_path)
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "All"], check=True)
    dashboard = folder / "scripts" / "build-dashboard"
    subprocess.run([dashboard], check=True)
    status = subprocess.run([*git, "status", "--porcelain"], check=True, capture_output=True)
    assert status.stdout == b""
    again = subprocess.run([dashboard], check=True, capture_output=True)
    assert again.stdout == b""
    shutil.rmtree(folder / ".git")

    (tmp_path / "dist").mkdir()
    second = build(tmp_path / "dist", folder)
    assert sorted(second) == [
        "SHA256SUMS",
        f"outrider-{__version__}-agent.txt",
        f"outrider-{__version__}-py3-none-any.whl",
        f"outrider-{__version__}.cdx.json",
        f"outrider-{__version__}.tar.gz",
    ]
    first = {path.name: path.read_bytes() for path in release.iterdir()}
    assert [name for name in first if first[name] != second.get(name)] == []

    # A stale dashboard is built again; Vite itself need not run for that.
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text('#!/bin/sh\necho "npm $*"\n')
    npm.chmod(0o755)
    page = folder / "web" / "index.html"
    page.write_text(page.read_text().replace("<title>Outrider", "<title>Changed"))
    path = f"{npm.parent}:{os.environ['PATH']}"
    changed = subprocess.run(
        [dashboard], env=os.environ | {"PATH": path}, check=True, capture_output=True, text=True
    )
    assert "Building the dashboard" in changed.stdout


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
    assert [package for package in packages if "pytest" in package or "npm/vite@" in package] == []
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


def test_the_requirements_with_hashes_can_be_installed_and_are_complete(
    release: Path, tmp_path: Path
) -> None:
    requirements, python = tmp_path / "requirements.txt", tmp_path / "venv" / "bin" / "python"
    subprocess.run([ROOT / "scripts" / "hash-requirements", requirements], check=True)
    assert "://" not in requirements.read_text()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--require-hashes", "--requirement", str(requirements)]
    subprocess.run([*pip, *options], check=True)
    (wheel,) = release.glob("*.whl")
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)
