"""The commands of docs/deploy.md make a database that the service can use."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.private import private
from tests.rig.processes import PROCESS_TIMEOUT, environment, outrider
from tests.servers.postgres import Postgres

DOCUMENT = Path(__file__).parents[2] / "docs" / "deploy.md"
PASSWORD = "0123456789abcdef"

# The private server has a superuser named `outrider`, so the document's role gets another name.
ROLE = "service"
ACCESS = f"host all {ROLE} all scram-sha-256\nhost all all all trust\n"


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A server that asks the new role for its password."""
    with private(Postgres) as server:
        (server.directory / "data" / "pg_hba.conf").write_text(ACCESS)
        server.restart()
        yield server


async def test_the_documents_commands_make_a_database(postgres: Postgres, tmp_path: Path) -> None:
    _, _, section = DOCUMENT.read_text().partition("### The database")
    block = section.split("```sh\n")[1].split("```")[0]
    commands = block.replace("sudo -u postgres ", "").replace("outrider", ROLE)
    made = await asyncio.to_thread(_run, commands, postgres)
    assert made.returncode == 0, made.stderr

    url = f"postgresql://{ROLE}:PASSWORD@127.0.0.1:{postgres.port}/{ROLE}"
    wrong = environment(tmp_path / "data", database_url=url)
    (await outrider("admin", "migrate", env=wrong)).assert_sentence()
    right = environment(tmp_path / "data", database_url=url.replace("PASSWORD", PASSWORD))
    assert (await outrider("admin", "migrate", "--json", env=right)).json() == {"migrated": True}

    query = f"SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = '{ROLE}'"
    rights = await asyncio.to_thread(_run, f'psql -At -c "{query}" postgres', postgres)
    assert rights.stdout == "f|f|f\n"


def _run(commands: str, postgres: Postgres) -> subprocess.CompletedProcess[str]:
    programs = Path(postgres.command[0]).parent
    return subprocess.run(
        ["sh", "-e", "-c", commands],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(postgres.port),
            "PGUSER": "outrider",
        },
        input=f"{PASSWORD}\n{PASSWORD}\n",  # without a terminal, createuser reads it here
        capture_output=True,
        text=True,
        timeout=PROCESS_TIMEOUT,
        start_new_session=True,
        check=False,
    )
