"""Writes the requirements of the machine agent alone: a part of what the wheel installs, pinned.

Usage: agent_requirements.py PYPROJECT WHEEL SITE-PACKAGES FILE. The dependency group `agent` of
PYPROJECT is resolved with the packages in SITE-PACKAGES, where the wheel has been installed.
"""

import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OLDEST_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}
"""It needs the most packages: later versions bring some of them along."""

HEADER = """\
# What the machine agent of Outrider alone needs. The service is not in it (docs/install.md):
#   pip install --no-deps --requirement {file} {wheel}
"""


def closure(required: list[str], installed: dict[str, Distribution]) -> dict[str, str]:
    """Return the requirements and, in turn, theirs: name and version, by name."""
    waiting = [(Requirement(text), "") for text in required]
    found: dict[str, str] = {}
    seen = set()
    while waiting:
        one, extra = waiting.pop()
        if one.marker is not None and not one.marker.evaluate(OLDEST_PYTHON | {"extra": extra}):
            continue
        name = canonicalize_name(one.name)
        found[name] = installed[name].version
        for wanted in {"", *one.extras}:
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(Requirement(text), wanted) for text in installed[name].requires or []]
    return found


def main() -> None:
    """Write the file."""
    pyproject, wheel, packages, file = map(Path, sys.argv[1:])
    required = tomllib.loads(pyproject.read_text())["dependency-groups"]["agent"]
    installed = {
        canonicalize_name(one.metadata["Name"]): one for one in distributions(path=[str(packages)])
    }
    pins = closure(required, installed)
    lines = [f"{name}=={version}\n" for name, version in sorted(pins.items())]
    file.write_text(HEADER.format(file=file.name, wheel=wheel.name) + "".join(lines))


if __name__ == "__main__":
    main()
