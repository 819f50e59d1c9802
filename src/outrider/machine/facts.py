"""This machine's properties and load, as the API shows them."""

import os
import platform
import socket
import sys
import time

import psutil

from outrider.contract.resources import Machine


def describe_machine() -> Machine:
    """Return this machine's properties and current load.

    Called on the event loop, every 20 s while connected: must not block or start a program.

    `platform` is Python's `sys.platform` (`linux`, `darwin`, …). `free_mem` is the memory in
    bytes that programs can still get, caches included; `uptime` is in seconds.
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
