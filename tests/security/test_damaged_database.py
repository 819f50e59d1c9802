"""A running service whose database was damaged: it says so, and no backup takes it for whole."""

from pathlib import Path

from tests.rig.processes import environment, outrider
from tests.rig.stores import damage_table
from tests.rig.waiting import eventually
from tests.security.target import Target


async def test_a_service_with_a_damaged_database_is_not_ready_and_keeps_its_backup(
    target: Target, tmp_path: Path
) -> None:
    data_dir = target.site.settings.data_dir
    env, backup = environment(data_dir), tmp_path / "backup"
    assert (await outrider("backup", str(backup), env=env)).code == 0
    whole = backup.read_bytes()
    damage_table(data_dir / "outrider.db", "accounts")

    async def is_unready() -> bool:
        return (await target.site.client().get("/readyz")).status_code == 503

    await eventually(is_unready)
    outcome = await outrider("backup", str(backup), "--force", env=env)
    assert outcome.code == 1
    assert "damaged" in outcome.err
    assert backup.read_bytes() == whole
