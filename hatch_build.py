"""Builds the dashboard into wheels and sdists; an editable installation needs no Node.js."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    """Runs `scripts/build-dashboard` before a wheel or an sdist is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the dashboard if it is missing or stale; an sdist brings a built one."""
        root = Path(self.root)
        is_sdist = (root / "PKG-INFO").exists()
        if version != "editable" and (root / "web").is_dir() and not is_sdist:
            subprocess.run([str(root / "scripts" / "build-dashboard")], check=True)
