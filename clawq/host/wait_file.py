"""The locked file that tells whether anybody is still in a job's `clawq wait`.

Each such process holds a shared lock on one file of its attempt. When it dies, however it dies, the kernel
lets go of the lock: pids are not asked, the one in the file only tells whose death is news.
"""

from __future__ import annotations

import fcntl
import os

SUFFIX = ".wait"

_held: set[int] = set()
_forks_are_known = False


def path_of(run_dir: str, token: int) -> str:
    return os.path.join(run_dir, f"{token}{SUFFIX}")


def hold(path: str) -> int:
    """A descriptor that holds the lock until ``let_go``, and in no fork: what goes on there does not wait."""
    global _forks_are_known
    if not _forks_are_known:
        _forks_are_known = True
        os.register_at_fork(after_in_child=_let_go_of_all)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    _held.add(descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.pwrite(descriptor, b"%-20d\n" % os.getpid(), 0)
    return descriptor


def let_go(descriptor: int) -> None:
    """Close it, unless that was done in a fork."""
    if descriptor in _held:
        _held.discard(descriptor)
        os.close(descriptor)


def _let_go_of_all() -> None:
    for descriptor in list(_held):
        let_go(descriptor)


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
