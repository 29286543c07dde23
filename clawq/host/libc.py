"""What Python has no call for. Apart from clawq.host.platform, since `ctypes` costs 2 ms to load and on Linux
next to nobody needs it."""

from __future__ import annotations

import ctypes

_PR_SET_CHILD_SUBREAPER = 36
_RUSAGE_INFO_V0, _RUSAGE_INFO_SIZE = 0, 512


def become_subreaper() -> bool:
    """Linux. False when it was refused."""
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def rusage_of(pid: int) -> bytes:
    """macOS: a ``struct rusage_info_v0``; empty when it is gone."""
    buffer = ctypes.create_string_buffer(_RUSAGE_INFO_SIZE)
    try:
        failed = ctypes.CDLL(None).proc_pid_rusage(pid, _RUSAGE_INFO_V0, buffer)
    except (OSError, AttributeError):
        return b""
    return b"" if failed else buffer.raw


def sysctl(name: tuple[int, ...]) -> bytes:
    """macOS; empty when there is nothing of this name."""
    libc = ctypes.CDLL(None, use_errno=True)
    mib = (ctypes.c_int * len(name))(*name)
    size = ctypes.c_size_t(0)
    if libc.sysctl(mib, len(name), None, ctypes.byref(size), None, 0) != 0 or not size.value:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if libc.sysctl(mib, len(name), buffer, ctypes.byref(size), None, 0) != 0:
        return b""
    return buffer.raw[: size.value]


def sysctl_by_name(name: bytes) -> bytes:
    """macOS; empty when there is nothing of this name."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t(0)
    if libc.sysctlbyname(name, None, ctypes.byref(size), None, 0) != 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if libc.sysctlbyname(name, buffer, ctypes.byref(size), None, 0) != 0:
        return b""
    return buffer.raw[: size.value]
