"""The locked file that tells whether anybody is still in a job's `clawq wait`.

Each such process holds a shared lock on one file of its attempt. When it dies, however it dies, the kernel
lets go of the lock: pids are not asked, the one in the file only tells whose death is news.
"""

from __future__ import annotations

import fcntl
import os

SUFFIX = ".wait"


def path_of(run_dir: str, token: int) -> str:
    return os.path.join(run_dir, f"{token}{SUFFIX}")


def hold(path: str) -> int:
    """A descriptor that holds the lock as long as it is open."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.pwrite(descriptor, b"%-20d\n" % os.getpid(), 0)
    return descriptor


def is_the_one(descriptor: int, path: str) -> bool:
    """Is what is held still the file at its place, where it is looked for?"""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def is_held(path: str) -> bool:
    """Does anybody hold it?"""
    try:
        # Without waiting, should somebody have put a pipe there.
        probe = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(probe)
    return False


def holder(path: str) -> int | None:
    """The process that took it last."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.pread(descriptor, 20, 0).strip()
    finally:
        os.close(descriptor)
    return int(text) if text.isdigit() else None
