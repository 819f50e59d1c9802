"""What commands do when their standard output cannot be written."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.processes import PROCESS_TIMEOUT


def outrider(folder: Path, output: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a home of its own, with this file as its standard output."""
    with Path(output).open("w") as file:
        return subprocess.run(
            [sys.executable, "-m", "outrider", *words],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            env={"HOME": str(folder), "OUTRIDER_DATA_DIR": str(folder), "PATH": "/usr/bin:/bin"},
            timeout=PROCESS_TIMEOUT,
            check=False,
        )


@pytest.mark.parametrize(
    "words",
    [
        "--version",
        "--help",
        "providers list",
        "providers check aider",
        "doctor",
    ],
)
def test_a_full_disk_ends_a_command_with_a_sentence(tmp_path: Path, words: str) -> None:
    done = outrider(tmp_path, "/dev/full", *words.split())
    lines = done.stderr.splitlines()
    assert lines[-1:] == ["outrider: Standard output cannot be written: No space left on device"]
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "outrider", "--help"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"HOME": str(tmp_path)}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(PROCESS_TIMEOUT)
