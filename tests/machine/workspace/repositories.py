"""Repositories for tests, made with git's own command line."""

import hashlib
import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": os.devnull,
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_COUNT": "3",
    "GIT_CONFIG_KEY_0": "init.defaultBranch",
    "GIT_CONFIG_VALUE_0": "main",
    "GIT_CONFIG_KEY_1": "protocol.file.allow",
    "GIT_CONFIG_VALUE_1": "always",
    "GIT_CONFIG_KEY_2": "gc.auto",
    "GIT_CONFIG_VALUE_2": "0",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


@dataclass(frozen=True)
class Repo:
    """A working tree of a test."""

    path: Path

    def git(self, *arguments: str, may_fail: bool = False) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert may_fail or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "replace").strip()

    def write(self, name: str, data: str | bytes) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        return file

    def commit(self, message: str = "work", **files: str) -> None:
        for name, data in files.items():
            self.write(name, data)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)


def repository(path: Path) -> Repo:
    """Make an empty repository."""
    path.mkdir(parents=True)
    repo = Repo(path)
    repo.git("init", "--quiet")
    return repo


def write_index(repo: Repo, names: list[bytes], contents: str = "old\n") -> None:
    """Write an index that git would not write: with these names, all of one file's contents."""
    (repo.path / "contents").write_text(contents)
    object_id = bytes.fromhex(repo.git("hash-object", "-w", "contents"))
    (repo.path / "contents").unlink()
    entries = [struct.pack(">4sII", b"DIRC", 2, len(names))]
    for name in sorted(names):
        status = struct.pack(">6I", 0, 0, 0, 0, 0, 0)
        fields = struct.pack(">4I20sH", 0o100644, 0, 0, 0, object_id, min(len(name), 0xFFF))
        size = len(status + fields) + len(name)
        entries.append(status + fields + name + b"\0" * (8 - size % 8))
    data = b"".join(entries)
    (repo.path / ".git" / "index").write_bytes(data + hashlib.sha1(data).digest())
