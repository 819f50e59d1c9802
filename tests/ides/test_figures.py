"""What following an IDE costs, and how soon it tells."""

import asyncio
import statistics
import sys
import time

import psutil
import pytest

from outrider.contract.commands import Screenshot
from tests.agents.machine import until
from tests.ides.desk import Desk, Ide

pytestmark = [pytest.mark.ide, pytest.mark.timeout(110)]

CHANGE = """
Date.now() + (document.getElementById('busy').innerHTML = %r, 0)
"""


def report(line: str) -> None:
    """Show a figure (with pytest -s)."""
    sys.stdout.write(f"\n{line}\n")


def followers() -> list[psutil.Process]:
    """Return this process and those of Playwright."""
    own = psutil.Process()
    children = own.children(recursive=True)
    alive = [child for child in children if child.status() != psutil.STATUS_ZOMBIE]
    return [own, *(child for child in alive if "driver" in " ".join(child.cmdline()))]


def cpu_of(processes: list[psutil.Process]) -> float:
    """Return the seconds of CPU that these have used."""
    return sum(p.cpu_times().user + p.cpu_times().system for p in processes)


async def test_status_comes_within_half_a_second(faulty: Desk) -> None:
    ide = await faulty.open()
    delays = []
    for n in range(60):
        wanted, html = ("generating", '<i class="working">x</i>') if n % 2 == 0 else ("idle", "")
        changed = await ide.script(CHANGE % html) / 1000
        await until(lambda status=wanted: ide.status == status, 5)  # type: ignore[misc]
        delays.append(time.time() - changed)
    delays.sort()
    p95 = delays[int(len(delays) * 0.95)]
    report(f"status delay: median {statistics.median(delays):.3f} s, p95 {p95:.3f} s")
    assert p95 <= 0.5


async def test_an_idle_ide_costs_next_to_nothing(faulty: Desk) -> None:
    ide = await faulty.open()
    await ide.turn("hello")
    await cost(ide, "a quiet page")


async def test_an_idle_jupyterlab_costs_next_to_nothing(lab: Desk) -> None:
    ide = await lab.open()
    await ide.turn("hello")
    await cost(ide, "JupyterLab")


async def cost(ide: Ide, name: str, seconds: float = 30) -> None:
    """Measure the CPU of the daemon and its driver while nothing happens; and screenshots."""
    await asyncio.sleep(2)
    watching = followers()
    assert len(watching) > 1
    before = cpu_of(watching)
    await asyncio.sleep(seconds)
    share = (cpu_of(watching) - before) / seconds
    took = []
    for _ in range(15):
        began = time.monotonic()
        await ide.session.screenshot(Screenshot())
        took.append(time.monotonic() - began)
    report(f"{name}: {share:.2%} of a core, screenshot median {statistics.median(took):.3f} s")
    assert share <= 0.01
