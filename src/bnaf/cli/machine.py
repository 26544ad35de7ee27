"""What a command does about the machine it runs on, before torch starts its threads."""

import os
from collections.abc import MutableMapping
from pathlib import Path

LOADS = Path("/proc/loadavg")
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables by which a user says how threads wait."""


def share_cores(environment: MutableMapping[str, str] = os.environ, loads: Path = LOADS) -> None:
    """Let threads that wait for others sleep rather than spin, where cores are taken.

    A thread that spins on a core that somebody else needs holds up all of them; on an idle machine
    one that sleeps wakes up late. What the user has said stays.

    Args:
        environment: Variables that the threads will be started by.
        loads: File that tells how many processes want to run at this moment.
    """
    if not any(name in environment for name in WAITING) and others_running(loads) > 0:
        environment["OMP_WAIT_POLICY"] = "passive"


def others_running(loads: Path = LOADS) -> int:
    """Return how many other processes want to run at this moment; 0 where it is not told."""
    try:
        running, _, _ = loads.read_text().split()[3].partition("/")
        return max(0, int(running) - 1)
    except (OSError, ValueError, IndexError):
        return 0
