"""What has changed in the directory of a session, and its files, read with git's command line.

    changes ──┐                       ┌─ repository: finds it, refuses one that leads elsewhere
    files ────┼─> git: SafeRepository ─┤
    worktrees ┘                       └─ git's programs, bounded in time and output

A repository may be made to attack its reader: its configuration can name programs (hooks, filters,
`core.fsmonitor`, `textconv`, …). So whatever touches the working tree uses a private git directory
with a configuration of our own, beside the repository's objects and a copy of its index: see `git`.
"""
