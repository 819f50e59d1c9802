"""`outrider backup` and `outrider restore`: the data of a service that uses SQLite."""

from pathlib import Path

import msgspec
from rich.filesize import decimal

from outrider.cli.database_command import show, when
from outrider.cli.running import fail, service_settings
from outrider.cloud import backup
from outrider.cloud.backup import Description
from outrider.cloud.store.database import HEAD
from outrider.contract.errors import OutriderError


def create(file: Path, *, overwrite: bool, as_json: bool) -> None:
    """Write a backup and say what is in it and what is not."""
    settings = service_settings()
    try:
        made = backup.create(settings, file, overwrite=overwrite)
    except OutriderError as error:
        fail(str(error))
    key = (
        "It has the secret key: keep it as safe as a password."
        if made.has_secret_key
        else "The secret key is not in it: keep OUTRIDER_SECRET_KEY too."
    )
    size = file.stat().st_size
    show(
        as_json,
        {"file": str(file), "bytes": size, **_fields(made)},
        f"{file} has the service's data ({decimal(size)}). {key}\n"
        "Not in it: settings, and what the machines keep (chats, connections).",
    )


def restore(file: Path, *, overwrite: bool, as_json: bool) -> None:
    """Restore a backup and say what comes next."""
    settings = service_settings()
    try:
        description, previous = backup.restore(settings, file, overwrite=overwrite)
    except OutriderError as error:
        fail(str(error))
    lines = [f"The service's data is that of {when(description.created_at)}."]
    if description.schema != HEAD:
        lines.append(
            f"It is of an older Outrider ({description.version}, schema {description.schema}): "
            f"the next start upgrades it to schema {HEAD}."
        )
    if previous:
        lines += ["The data before is in", *(f"  {path}" for path in previous)]
    lines.append("Start the service now.")
    show(
        as_json,
        {"previous": [str(path) for path in previous], **_fields(description)},
        "\n".join(lines),
    )


def _fields(description: Description) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(description)
    return fields
