"""The locked file that tells an attempt's life, and the small shell that keeps it.

The supervisor opens and locks the file, the shell inherits it as descriptor 3 and writes ``r PID``
before the agent runs and ``e CODE`` after it ended. Locked means alive, whoever asks and whatever
became of the supervisor; pids are not asked, since they are used again.
"""

from __future__ import annotations

import fcntl
import os
from typing import NamedTuple

SHELL = "/bin/sh"
# $0 is the working folder, "$@" the command. A folder that is gone ends it like a program that
# cannot be run. The agent does not inherit descriptor 3, so nothing it leaves behind holds the lock.
SCRIPT = (
    'trap : HUP INT TERM; (echo "r $$" >&3 && { cd "$0" || exit 126; } && exec "$@" 3>&-); echo "e $?" >&3'
)
SUFFIX = ".attempt"
_MOST_PID = 2**31 - 1
_MOST_EXIT_CODE = 255
_MOST_DIGITS = 10


class Reading(NamedTuple):
    """What an attempt file says: the shell's pid once the agent runs, the exit code once it ended."""

    exists: bool
    pid: int | None
    exit_code: int | None
    written_at: int
    """Epoch milliseconds of the last line."""


NOTHING = Reading(exists=False, pid=None, exit_code=None, written_at=0)


def path_of(run_dir: str, token: int) -> str:
    return f"{run_dir}/{token}{SUFFIX}"


def token_of(name: str) -> int | None:
    """Whose a file of the run folder is, by its name; None for what is none of ours."""
    token, dot, _ = name.partition(".")
    return int(token) if dot and token.isascii() and token.isdigit() else None


def create(path: str) -> int:
    """Make and lock a new attempt file; its descriptor. FileExistsError when the token was used before."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def open_probe(path: str) -> int | None:
    """A descriptor of one's own to test the lock with; None when there is no such file."""
    try:
        # Without waiting, should somebody have put a pipe there.
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None


def is_locked(probe: int) -> bool:
    """Does anybody else hold the lock? When nobody does, this descriptor holds it from now on."""
    try:
        fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def read(probe: int) -> Reading:
    """What the file says now."""
    pid = exit_code = None
    for line in os.pread(probe, 4096, 0).decode("ascii", "replace").splitlines():
        mark, _, number = line.partition(" ")
        # An agent may have written into it, too; a number that is neither is none of the shell's.
        if not number.isdigit() or len(number) > _MOST_DIGITS:
            continue
        if mark == "r" and 0 < int(number) <= _MOST_PID:
            pid = int(number)
        elif mark == "e" and int(number) <= _MOST_EXIT_CODE:
            exit_code = int(number)
    return Reading(True, pid, exit_code, os.fstat(probe).st_mtime_ns // 1_000_000)
