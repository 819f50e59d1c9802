"""What the documentation says that it runs: Python and shell.

Python of docs/python.md, docs/quickstart.md and the client's docstrings, and of README.md and docs
the blocks of shell that name this file.
"""

import asyncio
import os
import re
import shutil
from pathlib import Path

import pytest

import outrider.sdk
from outrider.sdk import AsyncAgent
from tests.rig.waiting import TIMEOUT
from tests.sdk.conftest import Workplace

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?<!<!-- run: tests/sdk/test_login.py -->\n)^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
EXAMPLES = [
    *BLOCK.findall((ROOT / "docs" / "python.md").read_text()),
    *BLOCK.findall((ROOT / "docs" / "quickstart.md").read_text()),
    *BLOCK.findall((outrider.sdk.__doc__ or "").replace("claude-code", "demo")),
]


async def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 8


@pytest.mark.parametrize("example", EXAMPLES)
async def test_the_example_runs(
    example: str,
    workplace: Workplace,
    agent: AsyncAgent,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OUTRIDER_URL", workplace.site.url)
    monkeypatch.setenv("OUTRIDER_API_KEY", workplace.key)
    program = compile(example.replace("/srv/app", str(workplace.project)), "example", "exec")
    running = asyncio.create_task(asyncio.to_thread(exec, program, {}))
    if "client.events" in example:  # an example that waits for a turn to fail
        while not running.done():
            await agent.ask("fail", timeout=TIMEOUT)
    async with asyncio.timeout(TIMEOUT):
        await running
    if "for approval in" not in example:
        assert capsys.readouterr().out


MARKED = re.compile(
    r"<!-- run: tests/sdk/test_docs.py -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
SCRIPTS = {
    str(page.relative_to(ROOT)): "".join(blocks)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (blocks := MARKED.findall(page.read_text()))
}
# An error response ends the script. The ids that a reader copies from responses are copied too.
BEFORE = r"""
set -euo pipefail
git init --quiet --initial-branch main && mkdir src && echo 'import re' >src/parser.py
git add . && git -c user.name=A -c user.email=a@example.com commit --quiet --message First
curl() {
    local output
    output=$(command curl --silent --show-error --fail-with-body --max-time 90 "$@") || {
        echo "$* failed: $output"; exit 1
    }
    echo "$output"
    if [[ $output =~ '"sessionTargetId":"'([^\"]*) ]]; then AGENT=${BASH_REMATCH[1]}; fi
    if [[ $output =~ '"cursor":"'([^\"]*) ]]; then CURSOR=${BASH_REMATCH[1]}; fi
}
"""


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_documented_commands_run(workplace: Workplace, tmp_path: Path) -> None:
    """Run the marked blocks in one shell: starting an agent for each page would take seconds."""
    # Those that launch an agent come first. demo.md is their last, because it leaves its agent
    # running, which is the others'.
    pages = sorted(
        SCRIPTS, key=lambda page: ("/launch" not in SCRIPTS[page], page == "docs/demo.md")
    )
    script = "".join(f"# {page}\n{SCRIPTS[page]}" for page in pages)
    script = script.replace("claude-code", "demo").replace("/home/me/project", str(tmp_path))
    # Other tests have demo agents on this machine too.
    script = script.replace(
        """'{"type": "demo"}'""", """'{"type": "demo", "target": "'$AGENT'"}'"""
    )
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", BEFORE + script),
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "KEY": workplace.key,
            "auth": f"Authorization: Bearer {workplace.key}",
            "API": f"{workplace.site.url}/api/v1",
            "MACHINE": workplace.machine_id,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(4 * TIMEOUT):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    async with workplace.client() as client:
        for session in await client.sessions.list(state="running"):
            if session.workspace is not None and session.workspace.path == str(tmp_path):
                await client.agent(session.target_id).stop()
