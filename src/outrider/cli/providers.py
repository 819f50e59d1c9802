"""`outrider providers`: list the known agents, check whether one starts, capture a screen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from outrider.contract.resources import PendingAction, Provider

app = typer.Typer(
    no_args_is_help=True, help="Show the agents that this machine knows, and test them."
)


_MAX_COLUMNS = 100
"""The longest line of `list`."""


@app.command("list")
def list_() -> None:
    """List every agent that this machine knows, and the file that describes it.

    Long paths are cut at the start; `check` shows them in full. Invalid files are listed at the
    end, and the exit code is 1 then.
    """
    from outrider.cli.running import daemon_settings, fail
    from outrider.contract.errors import OutriderError
    from outrider.machine.agents.inspection import known_providers
    from outrider.machine.agents.provider_spec import BUILT_IN_DIRECTORY

    try:
        providers = known_providers(daemon_settings())
    except OutriderError as error:
        fail(str(error))
    errors = [provider.description.error for provider in providers]
    invalid = [error for error in errors if error is not None]
    rows = [("TYPE", "KIND", "INSTALLED", "VERIFIED", "PROGRAM", "FILE")]
    for provider in providers:
        description = provider.description
        rows.append(
            (
                description.type,
                description.category,
                _installed(description),
                "yes" if description.verified else "no",
                _short(description.path or "-"),
                "built in"
                if provider.file.parent == BUILT_IN_DIRECTORY
                else _short(str(provider.file)),
            )
        )
    widths = _fitting([max(map(len, column)) for column in zip(*rows, strict=True)])
    for row in rows:
        cells = (_end(cell, width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
    if invalid:
        fail("\n".join(invalid))


def _installed(description: "Provider") -> str:
    if description.error is not None:
        return "error"
    return "yes" if description.installed else "no"


def _short(path: str) -> str:
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path


def _fitting(widths: list[int]) -> list[int]:
    """Narrow the last two columns (paths) so that a line has at most `_MAX_COLUMNS` columns."""
    *others, program, file = widths
    available = max(_MAX_COLUMNS - sum(others) - 2 * (len(widths) - 1), 20)
    if program + file > available:
        # A column that needs less than half leaves the rest for the other one.
        program = max(min(program, available // 2), available - file)
        file = min(file, available - program)
    return [*others, program, file]


def _end(cell: str, width: int) -> str:
    """Pad a cell, or cut the start of one that is too long."""
    return cell.ljust(width) if len(cell) <= width else f"…{cell[len(cell) - width + 1 :]}"


@app.command()
def check(
    kind: Annotated[str, typer.Argument(metavar="TYPE", help="A type that `list` shows.")],
    trace: Annotated[
        bool, typer.Option("--trace", help="Show the messages of the Agent Client Protocol.")
    ] = False,
) -> None:
    """Show whether an agent is installed, its version, and whether it starts.

    The agent is started in this shell's environment, in an empty directory, and ended again. Of an
    ACP agent, its login methods and what it lets choose (modes, models) are shown as well.
    """
    from outrider.cli.running import daemon_settings, fail, run
    from outrider.contract.errors import OutriderError
    from outrider.contract.text import escaped
    from outrider.machine.agents.inspection import known_providers, try_start, version

    settings = daemon_settings()
    try:
        providers = {provider.description.type: provider for provider in known_providers(settings)}
    except OutriderError as error:
        fail(str(error))
    if kind not in providers:
        fail(f"Unknown type {kind!r}: this machine knows {', '.join(providers)}", 2)
    description = providers[kind].description
    typer.echo(
        f"{description.display_name} ({description.type}, {description.category}), "
        f"from {providers[kind].file}"
    )
    if description.error is not None:
        fail(description.error)
    if description.path is None:
        fail(f"not installed: its program is not on this shell's PATH ({providers[kind].install})")
    typer.echo(f"installed: {description.path}")
    typer.echo(f"version:   {run(version(description.path)) or 'unknown'}")
    start = run(try_start(settings, kind))
    for message in start.messages if trace else ():
        typer.echo(escaped(message))
    if start.login_methods is not None:
        typer.echo(f"login:     {escaped(', '.join(start.login_methods)) or 'no methods'}")
    if start.failure is not None or start.agent is None:
        fail(f"does not start: {start.failure}")
    agent, observation = start.agent, start.agent.observation
    what = "asks something" if observation.pending is not None else "is ready"
    typer.echo(f"starts:    {what} after {start.seconds:.1f} s")
    if description.category == "acp":
        typer.echo(f"status:    {observation.status}")
        for control in observation.controls:
            options = ", ".join(control.options) or "on or off"
            typer.echo(f"{control.id + ':':10} {control.value}, of: {options}")
    else:
        typer.echo(f"status:    {observation.status}, by the rule {agent.rule!r}")
        typer.echo(f"title:     {agent.title or '-'}")
    _show_question(observation.pending)


@app.command()
def capture(
    session: Annotated[str, typer.Argument(help="The id of a session of this machine.")],
) -> None:
    """Show the screen of a running agent, and how its status is determined."""
    from outrider.cli.running import daemon_settings, run
    from outrider.machine.agents.inspection import inspect_session

    report = run(inspect_session(daemon_settings(), session))
    typer.echo(report.screen.rstrip("\n"))
    typer.echo("─" * 40)
    typer.echo(f"type:      {report.type}")
    typer.echo(f"title:     {report.title or '-'}")
    typer.echo(
        f"screen:    {report.screen_status or 'no rule matches'}, by the rule {report.rule!r}"
    )
    typer.echo(f"record:    {report.record_activity or 'none'}")
    typer.echo(f"status:    {report.observation.status}")
    if report.observation.error is not None:
        typer.echo(f"error:     {report.observation.error}")
    _show_question(report.observation.pending)


def _show_question(pending: "PendingAction | None") -> None:
    if pending is None:
        return
    typer.echo("question:")
    for line in pending.message.splitlines():
        typer.echo(f"    {line}")
    for option in pending.options:
        typer.echo(f"    [{option.id}] {option.label} ({option.kind})")
