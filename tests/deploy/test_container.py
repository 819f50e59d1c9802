"""The Dockerfile gets all that the build reads, and its image runs as nobody special.

There is no Docker here: these are the mistakes that would otherwise show only in its build.
"""

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.rig.waiting import TIMEOUT
from tests.servers.redis import Redis
from tests.servers.server import free_port, program, until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
BUILD, IMAGE = re.split(r"^(?=FROM )", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]


def _is_in_context(path: str) -> bool:
    """Apply the rules of the .dockerignore in order: the last one that matches decides."""
    is_in = True
    for rule in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = rule.removeprefix("!").removeprefix("**/")
        if not rule or rule.startswith("#"):
            continue
        parts = Path(path).parts
        tails = range(len(parts)) if rule.startswith("**/") else range(1)
        if any(
            fnmatch("/".join(parts[start:end]), pattern)
            for start in tails
            for end in range(start + 1, len(parts) + 1)
        ):
            is_in = rule.startswith("!")
    return is_in


@pytest.mark.parametrize(
    "path",
    [
        "pyproject.toml",
        "constraints.txt",
        "deploy/requirements.txt",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "scripts/build-dashboard",
        "scripts/in-web",
        "src/outrider/service/app.py",
        "web/package-lock.json",
        "web/src/app/main.tsx",
        "clients/typescript/src/api.ts",
    ],
)
def test_what_the_build_reads_is_in_its_context(path: str) -> None:
    assert (ROOT / path).exists() or path == "deploy/requirements.txt"  # made before the build
    assert _is_in_context(path)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        "deploy/.env",
        "tests/conftest.py",
        "web/node_modules/vite/index.js",
        "src/outrider/__pycache__/x.pyc",
        "src/outrider/service/static/index.html",
    ],
)
def test_what_it_must_not_see_is_not(path: str) -> None:
    assert not _is_in_context(path)


def test_the_image_has_the_installation_and_an_unprivileged_user() -> None:
    assert "COPY . ." in BUILD
    assert "COPY --from=build /opt/outrider /opt/outrider\n" in IMAGE
    (user,) = re.findall(r"^USER (.+)$", IMAGE, re.MULTILINE)
    assert int(user) > 0
    assert f"--uid {user} " in IMAGE
    assert re.search(r'^ENTRYPOINT \["outrider"\]$', IMAGE, re.MULTILINE)
    assert "pip install" not in IMAGE


@pytest.mark.parametrize("name", ["compose.yaml", "compose.single.yaml"])
def test_a_container_cannot_write_to_its_image(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert "dockerfile: deploy/Dockerfile" in text
    for line in ("read_only: true", "no-new-privileges:true", "cap_drop: [ALL]"):
        assert line in text, line


@pytest.mark.parametrize("name", ["compose.yaml", "compose.single.yaml"])
def test_every_image_can_be_given_by_its_digest(name: str) -> None:
    example = (DEPLOY / "example.env").read_text()
    for service in yaml.safe_load((DEPLOY / name).read_text())["services"].values():
        images = (
            [service["image"]] if "image" in service else [service["build"]["args"]["PYTHON_IMAGE"]]
        )
        for image in images:
            match = re.fullmatch(r"\$\{(\w+_IMAGE):-([\w.:-]+)\}", image)
            assert match is not None, image
            assert f"# {match[1]}={match[2]}@sha256:" in example
    assert re.findall(r"^FROM (\S+)", BUILD + IMAGE, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2


def test_the_image_installs_files_whose_hashes_are_known() -> None:
    assert "--require-hashes --requirement deploy/requirements.txt" in BUILD
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    (backend,) = re.findall(
        r'^requires = \["(.+)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert backend in pinned


def test_no_secret_is_an_argument_of_a_container() -> None:
    for service in COMPOSE["services"].values():
        arguments = [service.get("command"), service.get("healthcheck", {}).get("test")]
        assert not re.search(r"\$\{\w*(PASSWORD|KEY)", str(arguments))


def test_only_the_balancer_is_a_trusted_proxy() -> None:
    services = COMPOSE["services"]
    balancer = services["balancer"]["networks"]["inside"]["ipv4_address"]
    assert services["node"]["environment"]["OUTRIDER_TRUSTED_PROXIES"] == balancer


def test_the_redis_of_compose_asks_for_a_password_that_no_process_shows(tmp_path: Path) -> None:
    server, client = (program(name, Redis.name) for name in ("redis-server", "redis-cli"))
    port, secret = str(free_port()), "0123456789abcdef"
    (shell, option, script) = COMPOSE["services"]["redis"]["command"]
    script = script.replace("$$", "$").replace(
        "redis-server -", f"{server} - --bind 127.0.0.1 --port {port}"
    )
    env = {"PATH": os.environ["PATH"], "REDISCLI_AUTH": secret}

    def ping(**more: str) -> str:
        command = [str(client), "-p", port, "ping"]
        done = subprocess.run(
            command, env=env | more, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        return done.stdout

    with subprocess.Popen(
        [shell, option, script], env=env, cwd=tmp_path, stdout=subprocess.DEVNULL
    ) as process:
        try:
            assert until(lambda: ping() == "PONG\n")
            assert "NOAUTH" in ping(REDISCLI_AUTH="")
            shown = psutil.Process(process.pid).cmdline()
            assert shown[0].startswith(str(server))
            assert secret not in " ".join(shown)
        finally:
            process.terminate()


@pytest.mark.parametrize("name", ["outrider.service", "outrider-daemon.service"])
def test_a_unit_cannot_take_all_memory(name: str) -> None:
    assert re.search(r"^MemoryMax=", (DEPLOY / name).read_text(), re.MULTILINE)
