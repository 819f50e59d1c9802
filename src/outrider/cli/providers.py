"""`outrider providers`: which agents this machine knows, whether one starts, what one shows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outrider.contract.resources import PendingAction, Provider

app = typer.Typer(
    no_args_is_help=True, help="Show the agents that this machine knows, and try them."
)


_LINE = 100
"""Columns that `list` takes at most."""


@app.command("list")
def list_() -> None:
    """List every agent that this machine knows, and the file that describes it.

    Long paths lose their beginning; `check` shows them in full. Files that are wrong are named
    at the end, and the exit code is 1 then.
    """
    from outrider.cli.running import fail
    from outrider.contract.errors import OutriderError
    from outrider.daemon.agents.inspection import known_providers
    from outrider.daemon.agents.provider_spec import BUILT_IN
    from outrider.daemon.settings import DaemonSettings

    try:
        known = known_providers(DaemonSettings.from_environment())
    except OutriderError as error:
        fail(str(error))
    wrong = [each.description.error for each in known if each.description.error is not None]
    rows = [("TYPE", "KIND", "INSTALLED", "VERIFIED", "PROGRAM", "FILE")]
    for each in known:
        description = each.description
        rows.append(
            (
                description.type,
                description.category,
                _installed(description),
                "yes" if description.verified else "no",
                _short(description.path or "-"),
                "built in" if each.file.parent == BUILT_IN else _short(str(each.file)),
            )
        )
    widths = _fitting([max(map(len, column)) for column in zip(*rows, strict=True)])
    for row in rows:
        cells = (_end(cell, width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
    if wrong:
        fail("\n".join(wrong))


def _installed(description: "Provider") -> str:
    if description.error is not None:
        return "error"
    return "yes" if description.installed else "no"


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path


def _fitting(widths: list[int]) -> list[int]:
    """Narrow the last two columns, the paths, until a line has `_LINE` columns."""
    *others, program, file = widths
    room = max(_LINE - sum(others) - 2 * (len(widths) - 1), 20)
    if program + file > room:
        # A column that needs less than half leaves the rest to the other one.
        program = max(min(program, room // 2), room - file)
        file = min(file, room - program)
    return [*others, program, file]


def _end(cell: str, width: int) -> str:
    """Pad a cell, or cut off the beginning of one that is too long."""
    return cell.ljust(width) if len(cell) <= width else f"…{cell[len(cell) - width + 1 :]}"


@app.command()
def check(
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="A type that `list` shows.")],
) -> None:
    """Return whether an agent is installed, its version, and whether it starts.

    It is started as it would be from this shell, in an empty directory, and ended again.
    """
    from outrider.cli.running import fail, run
    from outrider.contract.errors import OutriderError
    from outrider.daemon.agents.inspection import known_providers, try_start, version
    from outrider.daemon.settings import DaemonSettings

    settings = DaemonSettings.from_environment()
    try:
        known = {each.description.type: each for each in known_providers(settings)}
    except OutriderError as error:
        fail(str(error))
    if kind not in known:
        fail(f"Unknown type {kind!r}: this machine knows {', '.join(known)}", 2)
    told = known[kind].description
    typer.echo(f"{told.display_name} ({told.type}, {told.category}), from {known[kind].file}")
    if told.error is not None:
        fail(told.error)
    if told.path is None:
        fail(f"not installed: its program is not on this shell's PATH ({known[kind].install})")
    typer.echo(f"installed: {told.path}")
    typer.echo(f"version:   {run(version(told.path)) or 'it does not tell'}")
    start = run(try_start(settings, kind))
    if start.failure is not None:
        fail(f"does not start: {start.failure}")
    what = "asks something" if start.pending is not None else "is ready"
    typer.echo(f"starts:    {what} after {start.seconds:.1f} s")
    typer.echo(f"status:    {start.status}, by the rule {start.rule!r}")
    typer.echo(f"title:     {start.title or '-'}")
    _show_question(start.pending)


@app.command()
def capture(
    session: Annotated[str, typer.Argument(help="The id of a session of this machine.")],
) -> None:
    """Show what a running agent shows, and what its status is judged from."""
    from outrider.cli.running import run
    from outrider.daemon.agents.inspection import look_at
    from outrider.daemon.settings import DaemonSettings

    look = run(look_at(DaemonSettings.from_environment(), session))
    typer.echo(look.screen.rstrip("\n"))
    typer.echo("─" * 40)
    typer.echo(f"type:      {look.type}")
    typer.echo(f"title:     {look.title or '-'}")
    typer.echo(f"screen:    {look.screen_status or 'no rule fits'}, by the rule {look.rule!r}")
    typer.echo(f"record:    {look.record_activity or 'says nothing now'}")
    typer.echo(f"status:    {look.status}")
    if look.error is not None:
        typer.echo(f"error:     {look.error}")
    _show_question(look.pending)


def _show_question(pending: "PendingAction | None") -> None:
    if pending is None:
        return
    typer.echo("question:")
    for line in pending.message.splitlines():
        typer.echo(f"    {line}")
    for option in pending.options:
        typer.echo(f"    [{option.id}] {option.label} ({option.kind})")
