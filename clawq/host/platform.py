"""What differs between Linux and macOS, in one place.

Every function answers for the platform it runs on and says None where the platform cannot tell.
"""

from __future__ import annotations

import os
import sys

from clawq.named import NamedTuple

LINUX = sys.platform.startswith("linux")
MACOS = sys.platform == "darwin"

_CTL_KERN, _KERN_PROC, _KERN_PROC_PID, _KERN_PROC_RUID = 1, 14, 1, 6
# Of macOS's struct kinfo_proc on 64 bits: its size, e_pcred.p_ruid and e_ppid.
_KINFO_SIZE, _KINFO_REAL_UID, _KINFO_PARENT = 648, 392, 560
_RUSAGE_PHYS_FOOTPRINT = 72
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
_KQ_FILTER_PROC, _KQ_NOTE_EXIT, _KQ_EV_ADD, _KQ_EV_ONESHOT = -5, 0x80000000, 0x1, 0x10


def boot_id() -> str:
    """Names this boot of the machine: no lock or pid from another one is to be believed."""
    if LINUX:
        return _contents("/proc/sys/kernel/random/boot_id").decode("ascii").strip()
    return _sysctl_by_name(b"kern.bootsessionuuid").rstrip(b"\0").decode("ascii", "replace") or "unknown"


def available_mb() -> int | None:
    """MiB that can be had without swapping. Linux only; psutil knows it everywhere and is long to load."""
    kib = _contents("/proc/meminfo").partition(b"\nMemAvailable:")[2].split(None, 1)
    return int(kib[0]) >> 10 if kib and kib[0].isdigit() else None


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
    return f"{_int(raw, 0, 8)}.{_int(raw, 8):06d}"


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


def parent_of(pid: int) -> int | None:
    """The pid of its parent; None when it is gone."""
    if LINUX:
        stat = _proc_stat(pid)
        return None if stat is None else int(stat[1])
    return parent_of_kinfo(_sysctl((_CTL_KERN, _KERN_PROC, _KERN_PROC_PID, pid)))


def parent_of_kinfo(raw: bytes) -> int | None:
    """The parent inside a macOS ``struct kinfo_proc``."""
    return None if len(raw) < _KINFO_SIZE else _int(raw, _KINFO_PARENT)


class Account(NamedTuple):
    """What counts against an account's ceiling: processes, and threads where it is those that count."""

    procs: int
    tasks: int | None


def account(uid: int) -> Account | None:
    """What runs with this real UID, zombies included; None where only psutil can tell.

    Linux: one small file for each process. macOS: one call for all of them.
    """
    if LINUX:
        procs = tasks = 0
        for pid in all_pids():
            owner, threads = owner_in_status(_contents(f"/proc/{pid}/status"))
            if owner == uid:
                procs += 1
                tasks += max(1, threads)
        return Account(procs, tasks)
    procs = count_kinfos(_sysctl((_CTL_KERN, _KERN_PROC, _KERN_PROC_RUID, uid)), uid)
    return Account(procs, None) if procs else None


def owner_in_status(text: bytes) -> tuple[int | None, int]:
    """(real UID, threads) in the text of /proc/PID/status; (None, 0) when the process is gone.

    The name, which anybody may choose, stands in the first line with its newlines escaped.
    """
    _, found, rest = text.partition(b"\nUid:\t")
    if not found:
        return None, 0
    threads = text.partition(b"\nThreads:\t")[2].partition(b"\n")[0]
    return int(rest.split(None, 1)[0]), int(threads) if threads.isdigit() else 0


def count_kinfos(raw: bytes, uid: int) -> int:
    """How many macOS ``struct kinfo_proc`` are in `raw`; 0 if they are not all whole and of this real UID.

    A layout that is not the one known here shows in the second check.
    """
    if len(raw) % _KINFO_SIZE:
        return 0
    starts = range(0, len(raw), _KINFO_SIZE)
    owners = {_int(raw, start + _KINFO_REAL_UID, signed=False) for start in starts}
    return len(starts) if owners <= {uid} else 0


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
            with open(f"{task}/{thread}/children", "rb", buffering=0) as file:
                found += [int(word) for word in file.readall().split()]
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


def environment_of(pid: int, name: str) -> str | None:
    """What `pid` was started with as this variable; None without it, or where it cannot be told."""
    if not LINUX:
        return None
    start = os.fsencode(name) + b"="
    for entry in _contents(f"/proc/{pid}/environ", 1 << 20).split(b"\0"):
        if entry.startswith(start):
            return os.fsdecode(entry[len(start) :])
    return None


def usage_of(pid: int) -> tuple[int, int] | None:
    """(private bytes, CPU ms) of one process, zombies too; None when it is gone.

    Linux: resident less shared pages, and with the CPU time of children it waited for. macOS: the "physical
    footprint" that Activity Monitor shows, else the resident size; own CPU time only.
    """
    if LINUX:
        stat = _proc_stat(pid)
        if stat is None:
            return None
        cpu_ms = sum(map(int, stat[11:15])) * 1000 // _TICKS
        return private_in_statm(_contents(f"/proc/{pid}/statm")), cpu_ms
    import psutil

    try:
        process = psutil.Process(pid)
        times = process.cpu_times()
        from clawq.host import libc

        private = footprint_of_rusage(libc.rusage_of(pid)) or process.memory_info().rss
    except psutil.Error:
        return None
    return private, int((times.user + times.system) * 1000)


def private_in_statm(text: bytes) -> int:
    """Bytes of resident pages that are not shared, by the text of /proc/PID/statm; 0 for one that is gone."""
    pages = text.split()
    return max(0, int(pages[1]) - int(pages[2])) * _PAGE if len(pages) > 2 else 0


def footprint_of_rusage(raw: bytes) -> int | None:
    """``ri_phys_footprint`` in bytes, inside a macOS ``struct rusage_info_v0``."""
    if len(raw) < _RUSAGE_PHYS_FOOTPRINT + 8:
        return None
    return _int(raw, _RUSAGE_PHYS_FOOTPRINT, 8, signed=False)


def memory_pressure() -> int | None:
    """0 normal, 1 warn, 2 critical; None where the kernel does not say (Linux without PSI)."""
    if LINUX:
        return level_of_psi(_contents("/proc/pressure/memory"))
    return level_of_sysctl(_sysctl_by_name(b"kern.memorystatus_vm_pressure_level"))


PSI_WARN_SOME = 10.0
PSI_CRITICAL_FULL = 20.0
"""Percent of the last ten seconds, ``avg10``. Warn: some task waited for memory for one second of them, so
reclaim has begun to cost. Critical: for two of them no task at all could go on, which is thrashing, and one
more agent would only make it worse; systemd-oomd begins to end things at 60. ``some`` alone is never
critical, since a single container at its own limit drives it to 100 while the machine has room."""


def level_of_psi(text: bytes) -> int | None:
    """The level by the text of /proc/pressure/memory; None when it is not that."""
    shares: dict[bytes, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(b" avg10=")
        try:
            shares[kind] = float(rest.split()[0])
        except (ValueError, IndexError):
            continue
    if b"some" not in shares:
        return None
    if shares.get(b"full", 0.0) >= PSI_CRITICAL_FULL:
        return 2
    return 1 if shares[b"some"] >= PSI_WARN_SOME else 0


def level_of_sysctl(raw: bytes) -> int | None:
    """The level by macOS's ``kern.memorystatus_vm_pressure_level``, an int of 1, 2 or 4."""
    return {1: 0, 2: 1, 4: 2}.get(_int(raw)) if len(raw) >= 4 else None


def become_subreaper() -> bool:
    """Have orphaned descendants come to this process instead of init (Linux). False elsewhere."""
    if not LINUX:
        return False
    from clawq.host import libc

    return libc.become_subreaper()


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


def max_procs_per_uid() -> int | None:
    """macOS: ``kern.maxprocperuid``. None elsewhere."""
    raw = _sysctl_by_name(b"kern.maxprocperuid") if MACOS else b""
    return _int(raw) if len(raw) >= 4 else None


def _proc_stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on: the name before them may hold spaces and brackets."""
    text = _contents(f"/proc/{pid}/stat")
    return text.rpartition(b")")[2].decode("ascii").split() if text else None


def _contents(path: str, size: int = 4096) -> bytes:
    """A file of /proc, at most `size` bytes; empty when it cannot be read.

    A third of what `open` costs: some of these are read for every process of the machine.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _sysctl(name: tuple[int, ...]) -> bytes:
    from clawq.host import libc

    return libc.sysctl(name)


def _sysctl_by_name(name: bytes) -> bytes:
    from clawq.host import libc

    return libc.sysctl_by_name(name)


def _int(raw: bytes, at: int = 0, size: int = 4, signed: bool = True) -> int:
    return int.from_bytes(raw[at : at + size], "little", signed=signed)
