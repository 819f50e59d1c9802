"""What has changed in the directory of a session, and its files, read with git's command line.

    changes ──┐                       ┌─ repository: finds it, refuses one that leads elsewhere
    files ────┼─> git: SafeRepository ─┤
    worktrees ┘                       └─ git's programs, bounded in time, memory and output

A repository may be made to attack its reader: its configuration can name programs (hooks, filters,
`core.fsmonitor`, `textconv`, …), and its index any file. So whatever touches the working tree uses
a private git directory with a configuration of our own, beside the repository's objects and a copy
of its index, whose names are checked: see `git` and `index`. The contents of files are read by
`staging` and `files`, without following a link; git only compares copies of them.
"""
