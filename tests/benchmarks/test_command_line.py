"""The command line of the benchmarks; none of them is run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m benchmarks`."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)


def test_the_benchmarks_are_listed() -> None:
    listed = run("--list")
    assert listed.returncode == 0, listed.stderr
    assert {"roundtrip", "sdk", "soak"} <= set(listed.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nothing"], "unknown benchmarks nothing: there are roundtrip, "),
        (["--rounds", "0"], "argument --rounds: it is at least 1"),
        (["--machines", "many"], "argument --machines: invalid number value: 'many'"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: list[str], error: str) -> None:
    refused = run(*arguments)
    assert refused.returncode == 2
    assert error in refused.stderr
