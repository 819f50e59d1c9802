"""The operating system: child processes, directories that are not left, the lock file."""
