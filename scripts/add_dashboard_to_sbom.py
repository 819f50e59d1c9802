"""Adds the version, and what is bundled into the dashboard, to the SBOM of the Python packages.

Usage: add_dashboard_to_sbom.py SBOM PACKAGE-LOCK VERSION. The SBOM is CycloneDX as JSON; it is
written anew, and the result is checked against the schema of CycloneDX.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote


def component(path: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Return a package of the lock file as a component."""
    name = path.rpartition("node_modules/")[2]
    algorithm, _, digest = entry["integrity"].partition("-")
    purl = f"pkg:npm/{quote(name)}@{entry['version']}"
    return {
        "bom-ref": purl,
        "type": "library",
        "name": name,
        "version": entry["version"],
        "purl": purl,
        "licenses": [{"expression": entry["license"]}],
        "hashes": [
            {
                "alg": algorithm.upper().replace("SHA", "SHA-"),
                "content": base64.b64decode(digest).hex(),
            }
        ],
    }


def main() -> None:
    """Write the SBOM."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    sbom, lock, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    content = json.loads(sbom.read_text())
    packages = json.loads(lock.read_text())["packages"]
    content["metadata"]["component"]["version"] = version
    # The empty path is the dashboard itself; development packages are not in the bundle.
    bundled = {
        path: entry for path, entry in sorted(packages.items()) if path and not entry.get("dev")
    }
    content["components"] += [component(path, entry) for path, entry in bundled.items()]
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    invalid = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if invalid is not None:
        sys.exit(f"The SBOM is not valid: {invalid}")
    sbom.write_text(text)


if __name__ == "__main__":
    main()
