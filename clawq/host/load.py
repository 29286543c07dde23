"""How loaded the machine is: this account's processes, memory, and the disk."""

from __future__ import annotations

import os

from clawq.host import ceiling, platform
from clawq.host.ceiling import Tasks
from clawq.named import NamedTuple
from clawq.settings import gate


class HostSample(NamedTuple):
    """The machine at one moment; None where it cannot be measured. Sizes in MiB.

    ``user_procs``: processes whose real UID is ours, zombies included. ``pressure``: 0 normal, 1 warn, 2
    critical. ``tasks``: where the kernel counts threads (Linux), those in use and how many of them the
    default limit allows, by the ceiling that is nearest.
    """

    user_procs: int | None
    free_mb: int | None
    pressure: int | None
    free_disk_mb: int | None
    tasks: Tasks | None = None


def sample(folder: str) -> HostSample:
    """Measure now; the disk is the one that holds `folder`.

    Looks at every process: ask only when something waits to start. Does not fork and does not raise.
    """
    account = _account(os.getuid())
    return HostSample(
        None if account is None else account.procs,
        _free_mb(),
        platform.memory_pressure(),
        free_disk_mb(folder),
        ceiling.nearest(None if account is None else account.tasks),
    )


def default_max_user_procs() -> int | None:
    """Three quarters of the account's ceiling; None where there is none."""
    lowest = ceiling.process_ceiling()
    return None if lowest is None else ceiling.share_of(lowest)


def process_gate(
    sample: HostSample | None, asked: int | str | None, default: int | None
) -> tuple[int | None, int | None]:
    """What the process gate compares: in use, and the limit (None: there is none).

    A configured limit (`asked`) is of processes. The default is a share of the kernel's own ceiling, and
    where that counts threads (Linux) so does the gate.
    """
    if asked is None and sample is not None and sample.tasks is not None:
        return sample.tasks
    return None if sample is None else sample.user_procs, default if asked is None else gate(asked)


def _account(uid: int) -> platform.Account | None:
    try:
        return platform.account(uid) or platform.Account(_count_through_psutil(uid), None)
    except OSError:  # no descriptor left, say: what cannot be measured refuses nothing
        return None


def _count_through_psutil(uid: int) -> int:
    import psutil

    count = 0
    for process in psutil.process_iter():
        try:
            if process.uids().real == uid:
                count += 1
        except psutil.Error:
            continue
    return count


def _free_mb() -> int | None:
    if platform.LINUX:
        return platform.available_mb()
    import psutil

    try:
        return psutil.virtual_memory().available // (1 << 20)
    except OSError:
        return None


def free_disk_mb(folder: str) -> int | None:
    """What is left for an account without privileges; None for a filesystem that does not say its size."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize >> 20 if found.f_blocks else None
