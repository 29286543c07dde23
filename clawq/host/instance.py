"""One supervisor per home: the lock file, what it says of its holder, and the sign that it still ticks.

Readers never try the lock, since that could make a supervisor that is just starting fail: they read the pid
with its kernel start time, and take the file's time of change for the last turn of the loop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from clawq.host import platform, processes
from clawq.named import NamedTuple
from clawq.paths import TICKS_WITHIN_MS

PATIENCE_S = 1.0
"""Between fork and exec a child of a dead supervisor may hold the lock for a moment longer."""


class Holder(NamedTuple):
    """Who wrote the lock file. ``since`` and ``last_tick`` are epoch ms."""

    pid: int
    started: str
    boot_id: str
    since: int
    version: str
    mode: str
    last_tick: int

    def is_alive(self) -> bool:
        """Is this very process still there?"""
        return self.boot_id == platform.boot_id() and processes.is_alive(
            processes.Process(self.pid, self.started)
        )


class Supervisor(NamedTuple):
    """``running``: alive and ticking. The rest is None where nobody holds the lock; times in ms."""

    running: bool
    pid: int | None = None
    since: int | None = None
    mode: str | None = None
    last_tick_age_s: float | None = None

    @property
    def silent_ms(self) -> int:
        return int(1000 * (self.last_tick_age_s or 0))

    @property
    def doing(self) -> str | None:
        """What one that ticks does: ``run``, or how it ends."""
        return self.mode if self.running else None


class Instance:
    """The held lock. Closing it, or dying, releases it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.was_left_open = os.fstat(descriptor).st_size > 0
        """Its last holder died, or the machine did: an orderly end leaves the file empty."""

    def announce(self, version: str, mode: str, now: int) -> None:
        """Write who holds the lock: one line, replaced in place."""
        pid = os.getpid()
        line = f"{pid} {platform.start_time(pid)} {platform.boot_id()} {now} {version} {mode}\n".encode()
        os.pwrite(self._descriptor, line, 0)
        os.ftruncate(self._descriptor, len(line))

    def tick(self) -> None:
        """Say that the loop turned: the file's time of change."""
        os.utime(self._descriptor)

    def close(self) -> None:
        try:
            os.ftruncate(self._descriptor, 0)
        except OSError:
            pass  # a disk that turned read-only
        os.close(self._descriptor)

    def is_ours(self, path: str) -> bool:
        """Is the held file still the one at `path`? Another supervisor may hold what was put in its place."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False


def acquire(path: str, patience_s: float = PATIENCE_S) -> Instance | None:
    """The lock, or None when another process keeps it for longer than `patience_s` seconds."""
    descriptor = _open(path)
    give_up = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return Instance(descriptor)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                os.close(descriptor)
                return None
            time.sleep(0.05)


def wait_for(path: str) -> Instance:
    """The lock, however long another process keeps it. Signals end the wait with their exceptions."""
    descriptor = _open(path)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return Instance(descriptor)


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", path)
    return descriptor


def living(path: str) -> Holder | None:
    """Who holds the lock, as its file says; None for one that is dead."""
    holder = read(path)
    return holder if holder is not None and holder.is_alive() else None


def look(path: str, now: int) -> Supervisor:
    """Who runs the queue; never tries the lock, and never forks."""
    holder = living(path)
    if holder is None:
        return Supervisor(False)
    silent = max(0, now - holder.last_tick)
    return Supervisor(
        silent < TICKS_WITHIN_MS, holder.pid, holder.since, holder.mode, round(silent / 1000, 1)
    )


def read(path: str) -> Holder | None:
    """What the lock file says; None when there is none, or nobody has written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            words = os.read(descriptor, 1_000).decode("ascii", "replace").split()
            changed = os.fstat(descriptor).st_mtime_ns // 1_000_000
        finally:
            os.close(descriptor)
    except OSError:
        return None
    if len(words) != 6 or not words[0].isdigit() or not words[3].isdigit():
        return None
    return Holder(int(words[0]), words[1], words[2], int(words[3]), words[4], words[5], changed)
