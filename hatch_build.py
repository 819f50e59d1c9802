"""Builds the dashboard into a wheel; an editable installation needs no Node.js and has none."""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    """Runs `scripts/build-dashboard` before a wheel is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the dashboard if it is missing or stale."""
        if self.target_name == "wheel" and version != "editable":
            root = Path(self.root)
            if (root / "web").is_dir():
                subprocess.run([str(root / "scripts" / "build-dashboard")], check=True)
