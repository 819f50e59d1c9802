"""The machine agent: runs beside coding agents and executes the service's commands.

    the service ─▶ link.connection ─▶ commands ─▶ sessions ─▶ agents (tmux, ACP, IDEs)
                                          └──────▶ terminals, workspace, debug
    an agent's event ─▶ sessions ─▶ link.journal (until acknowledged) ─▶ link.connection

`app` creates the parts. `enrollment` connects the machine to an account, `settings` holds its
files, `facts` what it reports of itself. `workspace` reads changes and files with git, `redaction`
removes secrets from texts, `system` is what these need of the operating system.
"""
