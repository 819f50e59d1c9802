"""Every provider of this machine, of whatever category, from its file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from outrider.daemon.agents.acp.provider_file import AcpFile
from outrider.daemon.agents.acp.providers import AcpProvider, forget_others
from outrider.daemon.agents.adapter import NoteRefusal
from outrider.daemon.agents.cli.provider_file import decode_cli
from outrider.daemon.agents.cli.providers import CliProvider
from outrider.daemon.agents.cli.tmux import Tmux
from outrider.daemon.agents.ide.driver import Driver
from outrider.daemon.agents.ide.provider_file import decode_ide
from outrider.daemon.agents.ide.providers import IdeProvider
from outrider.daemon.agents.ide.providers import forget_others as forget_other_ides
from outrider.daemon.agents.provider import Provider
from outrider.daemon.agents.provider_file import BUILT_IN, ProviderFileError, decode, read_tables
from outrider.daemon.agents.sessions import epoch_millis
from outrider.daemon.journal import Journal

CATEGORIES: Final = ("cli", "acp", "ide")


def load_providers(
    config_dir: Path,
    *,
    tmux: Tmux,
    journal: Journal,
    note_refusal: NoteRefusal,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Provider]:
    """Return every provider of the built-in files and of `<config_dir>/providers/*.toml`, by type.

    `note_refusal` is told what agents were kept from. `environment` is what agents inherit, the
    daemon's own where it is not given.

    Raises:
        ProviderFileError: a file is wrong; the text names the file and the field.
    """
    given = os.environ if environment is None else environment
    chats = config_dir / "chats"
    ides, driver = config_dir / "ides", Driver()
    kept = [record.id for record in journal.sessions()]
    forget_others(chats, kept)
    forget_other_ides(ides, kept)
    providers: dict[str, Provider] = {}
    for path, table in read_tables([BUILT_IN, config_dir / "providers"]):
        match table.get("category", "cli"):
            case "cli":
                cli = decode_cli(path, table)
                providers[cli.type] = CliProvider(
                    cli,
                    tmux=tmux,
                    journal=journal,
                    chats=chats,
                    environment=given,
                    clock=epoch_millis,
                )
            case "acp":
                acp = decode(path, table, AcpFile)
                providers[acp.type] = AcpProvider(
                    acp, chats, given, clock=epoch_millis, note_refusal=note_refusal
                )
            case "ide":
                ide, script = decode_ide(path, table)
                providers[ide.type] = IdeProvider(
                    ide,
                    script,
                    ides,
                    given,
                    journal=journal,
                    clock=epoch_millis,
                    driver=driver,
                )
            case other:
                known = ", ".join(CATEGORIES)
                raise ProviderFileError(f"{path}: category: {other!r} is none of {known}")
    return providers
