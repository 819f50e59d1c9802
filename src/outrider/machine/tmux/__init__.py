"""tmux: `control` has its protocol, `server` the commands."""
