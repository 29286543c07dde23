"""What differs between Linux and macOS, in one place.

Every function answers for the platform it runs on and says None where the platform cannot tell.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

LINUX = sys.platform.startswith("linux")
MACOS = sys.platform == "darwin"

_CTL_KERN, _KERN_PROC, _KERN_PROC_PID = 1, 14, 1
_PR_SET_CHILD_SUBREAPER = 36
_KQ_FILTER_PROC, _KQ_NOTE_EXIT, _KQ_EV_ADD, _KQ_EV_ONESHOT = -5, 0x80000000, 0x1, 0x10


def boot_id() -> str:
    """Names this boot of the machine: no lock or pid from another one is to be believed."""
    if LINUX:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    return _sysctl_by_name(b"kern.bootsessionuuid").rstrip(b"\0").decode("ascii", "replace") or "unknown"


def start_time(pid: int) -> str | None:
    """When the kernel started `pid`, as raw text that clock changes do not move; None when it is gone.

    Linux: clock ticks since boot. macOS: the kernel's own timeval.
    """
    if LINUX:
        stat = _proc_stat(pid)
        return None if stat is None else stat[19]
    raw = _sysctl((_CTL_KERN, _KERN_PROC, _KERN_PROC_PID, pid))
    return start_time_of_kinfo(raw)


def start_time_of_kinfo(raw: bytes) -> str | None:
    """The start time inside a macOS ``struct kinfo_proc``, whose first field is ``p_starttime``.

    An empty answer means that there is no such process.
    """
    if len(raw) < 16:
        return None
    seconds, microseconds = struct.unpack_from("<qi", raw)
    return f"{seconds}.{microseconds:06d}"


def run_state(pid: int) -> str | None:
    """``T`` stopped, ``Z`` zombie, ``R`` anything else alive; None when it is gone."""
    if LINUX:
        stat = _proc_stat(pid)
        if stat is None:
            return None
        return {"T": "T", "t": "T", "Z": "Z", "X": "Z"}.get(stat[0], "R")
    return run_state_of_kinfo(_sysctl((_CTL_KERN, _KERN_PROC, _KERN_PROC_PID, pid)))


def run_state_of_kinfo(raw: bytes) -> str | None:
    """The run state inside a macOS ``struct kinfo_proc``: ``p_stat`` follows two pointers and ``p_flag``."""
    if len(raw) < 37:
        return None
    return {4: "T", 5: "Z"}.get(raw[36], "R")


def all_pids() -> list[int]:
    """The pids that exist now."""
    if LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return psutil.pids()


def own_children(pid: int | None = None) -> list[int]:
    """The children of `pid` (this process when None), zombies too; empty where that is not cheap to ask."""
    if not LINUX:
        return []
    found = []
    task = f"/proc/{pid or os.getpid()}/task"
    try:
        for thread in os.listdir(task):
            with open(f"{task}/{thread}/children", encoding="ascii") as file:
                found += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return found


def carries(pid: int, entry: str) -> bool | None:
    """Was `pid` started with this environment entry (``K=V``)? None where it cannot be told."""
    if not LINUX:
        return None
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return os.fsencode(entry) in file.read().split(b"\0")
    except OSError:
        return None


def become_subreaper() -> bool:
    """Have orphaned descendants come to this process instead of init (Linux). False elsewhere."""
    if not LINUX:
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def exit_watch(pid: int) -> int | None:
    """A descriptor that becomes readable when `pid`, child or not, ends; None if it cannot be had.

    Linux: a pidfd. macOS: a kqueue with one NOTE_EXIT filter.
    """
    try:
        if hasattr(os, "pidfd_open"):
            return os.pidfd_open(pid)
        return _kqueue_for(pid)
    except OSError:
        pass
    return None


def _kqueue_for(pid: int) -> int | None:
    import select

    # Through getattr, since a type checker on Linux knows no kqueue.
    kqueue, kevent = getattr(select, "kqueue", None), getattr(select, "kevent", None)
    if kqueue is None or kevent is None:
        return None
    flags = _KQ_EV_ADD | _KQ_EV_ONESHOT
    queue = kqueue()
    queue.control([kevent(pid, _KQ_FILTER_PROC, flags, _KQ_NOTE_EXIT)], 0)
    descriptor = os.dup(queue.fileno())
    queue.close()
    return descriptor


def process_ceiling() -> int | None:
    """How many processes this account may have: the least of the kernel's, RLIMIT_NPROC's, the cgroup's."""
    import resource

    ceilings = []
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY:
        ceilings.append(soft)
    if MACOS:
        raw = _sysctl_by_name(b"kern.maxprocperuid")
        if len(raw) >= 4:
            ceilings.append(struct.unpack_from("<i", raw)[0])
    if LINUX:
        ceilings += [
            value for value in map(_int_in, ("/proc/sys/kernel/pid_max", _cgroup_pids_max())) if value
        ]
    return min(ceilings, default=None)


def _cgroup_pids_max() -> str:
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            group = file.read().strip().rpartition("::")[2].splitlines()[0]
    except (OSError, IndexError):
        group = "/"
    return f"/sys/fs/cgroup{group}/pids.max"


def _int_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _proc_stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on: the name before them may hold spaces and brackets."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def _sysctl(name: tuple[int, ...]) -> bytes:
    libc = ctypes.CDLL(None, use_errno=True)
    mib = (ctypes.c_int * len(name))(*name)
    size = ctypes.c_size_t(0)
    if libc.sysctl(mib, len(name), None, ctypes.byref(size), None, 0) != 0 or not size.value:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if libc.sysctl(mib, len(name), buffer, ctypes.byref(size), None, 0) != 0:
        return b""
    return buffer.raw[: size.value]


def _sysctl_by_name(name: bytes) -> bytes:
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t(0)
    if libc.sysctlbyname(name, None, ctypes.byref(size), None, 0) != 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if libc.sysctlbyname(name, buffer, ctypes.byref(size), None, 0) != 0:
        return b""
    return buffer.raw[: size.value]
