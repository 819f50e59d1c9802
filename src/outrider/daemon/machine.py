"""This machine, as the API shows it."""

import os
import platform
import socket
import sys
import time

import psutil

from outrider.contract.resources import Machine


def describe_machine() -> Machine:
    """Return this machine with its figures of now.

    `platform` is `linux`, `darwin` and so on, as Python's `sys.platform` names it.
    `free_mem` is what programs could still get, caches included.
    """
    memory = psutil.virtual_memory()
    return Machine(
        hostname=socket.gethostname(),
        platform=sys.platform,
        arch=platform.machine(),
        release=platform.release(),
        cpus=os.cpu_count() or 1,
        total_mem=memory.total,
        free_mem=memory.available,
        loadavg=[round(average, 2) for average in os.getloadavg()],
        uptime=round(max(0.0, time.time() - psutil.boot_time()), 1),
    )
