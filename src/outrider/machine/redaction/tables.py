"""The tables of `rules.toml`, which describes the known forms of secrets."""

import tomllib
from pathlib import Path
from typing import Any, Final

TABLES: Final[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
)
