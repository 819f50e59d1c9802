"""What a machine reports of itself."""

import os
import socket
import sys

from outrider.machine.facts import describe_machine


def test_a_machine_reports_its_properties_and_load() -> None:
    machine = describe_machine()
    assert (machine.hostname, machine.platform) == (socket.gethostname(), sys.platform)
    assert machine.cpus == os.cpu_count()
    assert 0 < machine.free_mem <= machine.total_mem
    assert len(machine.loadavg) == 3
    assert machine.uptime > 0
