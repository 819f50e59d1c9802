"""The arguments and options that several commands have."""

from typing import Annotated

import typer

from outrider.cli.client.completion import complete_machine, complete_target

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        autocompletion=complete_target,
        help="A session id or its beginning, a type, a target id, or NICKNAME:cli|acp|ide:TYPE.",
    ),
]
MachineName = Annotated[
    str,
    typer.Argument(metavar="MACHINE", autocompletion=complete_machine, help="The nickname or id."),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="MACHINE",
        autocompletion=complete_machine,
        help="The machine's nickname or id. Not needed if one is connected.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the API has it.")]
Email = Annotated[
    str | None,
    typer.Option(
        "--email",
        envvar="OUTRIDER_EMAIL",
        help="Who logs in, with the password of a prompt or of OUTRIDER_PASSWORD.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
