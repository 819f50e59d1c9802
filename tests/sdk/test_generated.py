"""The synchronous client is what the script makes of the asynchronous one."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

from outrider.sdk import synchronous
from outrider.sdk.synchronous import agent

ROOT = Path(__file__).parents[2]


def test_generating_in_a_bare_environment_gives_the_package(tmp_path: Path) -> None:
    """A build has Python and nothing else installed; what has no source is removed."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    sdk = tmp_path / "src" / "outrider" / "sdk"
    shutil.copytree(ROOT / "src" / "outrider" / "sdk" / "asynchronous", sdk / "asynchronous")
    (sdk / "synchronous").mkdir()
    (sdk / "synchronous" / "removed.py").touch()

    script = str(tmp_path / "scripts" / "generate_sync_client.py")
    subprocess.run([sys.executable, "-I", "-S", script], check=True)

    written = {path.name: path.read_text() for path in (sdk / "synchronous").iterdir()}
    package = Path(synchronous.__path__[0])
    assert written == {path.name: path.read_text() for path in package.glob("*.py")}


def test_the_generated_client_has_no_coroutines() -> None:
    assert inspect.isgeneratorfunction(agent.Agent.stream)
    assert not any(inspect.iscoroutinefunction(value) for value in vars(agent.Agent).values())
