"""How loaded the machine is: this account's processes and the free memory, through psutil."""

from __future__ import annotations

import os
from typing import NamedTuple

from clawq.host import platform

SHARE_OF_CEILING = 0.75
"""Of the account's process ceiling: the default limit."""


class HostSample(NamedTuple):
    """``user_procs``: processes whose real UID is ours, zombies included; ``free_mb``: available MiB."""

    user_procs: int | None
    free_mb: int | None


def sample() -> HostSample:
    """Measure now. Walks every process: ask only when something waits to start."""
    import psutil

    return HostSample(count_user_procs(os.getuid()), psutil.virtual_memory().available // (1 << 20))


def count_user_procs(uid: int) -> int:
    """Processes whose real UID is `uid`: what fork counts against the account's ceiling."""
    import psutil

    count = 0
    for process in psutil.process_iter():
        try:
            if process.uids().real == uid:
                count += 1
        except psutil.Error:
            continue
    return count


def default_max_user_procs() -> int | None:
    """Three quarters of the account's ceiling; None where there is none."""
    ceiling = platform.process_ceiling()
    return None if ceiling is None else max(1, int(ceiling * SHARE_OF_CEILING))
