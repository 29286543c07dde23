"""Processes of attempts that have ended, by the token that they carry; and where a folder really lies."""

from __future__ import annotations

import ctypes
import os

from clawq.host import platform
from clawq.host.mounts import mounts

_MAC_STATFS_TYPE = 72
"""Where macOS's ``struct statfs`` (64-bit inodes) has f_fstypename, 16 bytes."""


def strays(run: str, live: frozenset[int], but: frozenset[int]) -> list[int] | None:
    """Pids that carry a token of this queue (its files are in `run`) that is none of `live`.

    `but`: those that are none, such as the supervisor. None where the system does not tell.
    """
    if not platform.LINUX:
        return None
    found = []
    for pid in platform.all_pids():
        if pid in but:
            continue
        token = platform.environment_of(pid, "CLAWQ_TOKEN")
        if token is None or not token.isdecimal() or int(token) in live:
            continue
        file = platform.environment_of(pid, "CLAWQ_PAYLOAD_FILE")
        if file is not None and os.path.dirname(file) == run and platform.run_state(pid) not in (None, "Z"):
            found.append(pid)
    return sorted(found)


def filesystem_of(folder: str) -> str | None:
    """The type of the filesystem that holds `folder` (``ext4``, ``apfs``, ``nfs4``); None when not told."""
    if platform.MACOS:
        return _mac_filesystem(folder)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return type_in_mountinfo(file.read(), os.path.realpath(folder))
    except OSError:
        return None


def type_in_mountinfo(text: str, path: str) -> str | None:
    """By the text of /proc/self/mountinfo: the mount point nearest to `path`; of several the last mounted."""
    best, kind = "", None
    for _, point, type_, _ in mounts(text):
        inside = point == "/" or path == point or path.startswith(point + "/")
        if inside and len(point) >= len(best):
            best, kind = point, type_
    return kind


def _mac_filesystem(folder: str) -> str | None:
    buffer = ctypes.create_string_buffer(4096)
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("statfs$INODE64", "statfs"):
        try:
            call = getattr(libc, name)
        except AttributeError:
            continue
        return type_in_statfs(buffer.raw) if call(os.fsencode(folder), buffer) == 0 else None
    return None


def type_in_statfs(raw: bytes) -> str | None:
    """``f_fstypename`` in a macOS ``struct statfs``."""
    name = raw[_MAC_STATFS_TYPE : _MAC_STATFS_TYPE + 16].partition(b"\0")[0]
    return name.decode("ascii", "replace") or None


def wall_ahead_ms(pid: int, since: int, now: int) -> int | None:
    """How much further the wall clock has gone than the kernel's own since `pid` started, at `since` (epoch
    ms) or a little earlier. None where the kernel does not tell (macOS)."""
    started = platform.start_time(pid) if platform.LINUX else None
    if started is None or not started.isdecimal():
        return None
    import time

    boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    ran_ms = boot_ms - int(started) * 1000 // os.sysconf("SC_CLK_TCK")
    return now - since - ran_ms


def descriptor_limit(pid: int | None) -> int | None:
    """The soft limit of open files, of `pid` where the system tells, else our own; None: none."""
    if pid is not None and platform.LINUX:
        try:
            with open(f"/proc/{pid}/limits", encoding="ascii") as file:
                for line in file:
                    if line.startswith("Max open files"):
                        word = line.split()[3]
                        return int(word) if word.isdecimal() else None
        except OSError:
            pass
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
