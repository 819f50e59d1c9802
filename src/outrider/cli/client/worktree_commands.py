"""`outrider worktree …`: the git worktrees of sessions that have ended."""

import typer

from outrider.cli.client.arguments import AsJson, Target
from outrider.cli.client.output import session
from outrider.cli.client.target_names import find_agent
from outrider.cli.printing import show_result

app = typer.Typer(no_args_is_help=True, help="Git worktrees of ended sessions.")


@app.callback()
def group() -> None:
    """Git worktrees of ended sessions."""


@app.command()
def rm(target: Target, as_json: AsJson = False) -> None:
    """Remove the worktree of an ended session, unless it has changes. Its branch stays."""
    with session(as_json=as_json) as client:
        removed = find_agent(client, target, or_ended=True).remove_worktree()
        show_result(removed, removed.removed, as_json)
