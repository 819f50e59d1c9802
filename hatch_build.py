"""Puts what is generated into the package: the synchronous client, and the dashboard."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GeneratedHook(BuildHookInterface[Any]):
    """Runs before a wheel, an sdist or an editable installation is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Generate the client. Build the dashboard if it is missing or stale.

        An editable installation needs no dashboard, hence no Node.js; an sdist brings a built one.
        """
        root = Path(self.root)
        scripts = root / "scripts"
        subprocess.run([sys.executable, str(scripts / "generate_sync_client.py")], check=True)
        is_sdist = (root / "PKG-INFO").exists()
        if version != "editable" and (root / "web").is_dir() and not is_sdist:
            subprocess.run([str(scripts / "build-dashboard")], check=True)
