"""One agent: started under its small shell, looked at, ended with everything that it started."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping
from typing import NamedTuple

from clawq.host import attempt_file, platform, processes
from clawq.host.processes import Process
from clawq.paths import as_bytes

_THE_JOBS_OWN = {errno.E2BIG}
"""What only this job's arguments can cause; every other error of the system is the machine's."""
# Python ignores these two; an agent must start with the usual dispositions.
_RESET = [number for number in (getattr(signal, n, None) for n in ("SIGPIPE", "SIGXFSZ", "SIGXFZ")) if number]
_DESCRIPTORS_FROM = 10
_SHELL_ARGV = (b"sh", b"-c", attempt_file.SCRIPT.encode())


class SpawnFailed(Exception):
    """The machine could not do it (no room, a folder gone, a bad disk); nothing was started."""


class CannotStart(Exception):
    """This job cannot be started as it is (its arguments, its env_file); others can."""


class Spawned(NamedTuple):
    pid: int
    probe: int
    """A descriptor of the attempt file to test its lock with."""


def spawn(argv: list[str], cwd: str, env: Mapping[bytes, bytes], attempt_path: str, log_path: str) -> Spawned:
    """Start `argv` under the attempt file's shell, in a session of its own, output straight into the log.

    Raises SpawnFailed (no process, memory or descriptor left, disk full, folder gone), and CannotStart.
    """
    held: list[int] = []
    try:
        lock = _high(attempt_file.create(attempt_path), held)
        probe = attempt_file.open_probe(attempt_path)
        assert probe is not None
        held.append(probe)
        log = _high(_open_log(log_path), held)
        pid = os.posix_spawn(
            attempt_file.SHELL,
            [*_SHELL_ARGV, *[as_bytes(word) for word in (cwd, *argv)]],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
                (os.POSIX_SPAWN_DUP2, lock, 3),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_RESET,
        )
        held.remove(probe)
        return Spawned(pid, probe)
    except ValueError as error:
        raise CannotStart(str(error)) from error
    except OSError as error:
        if error.errno in _THE_JOBS_OWN:
            raise CannotStart(f"{error.strerror}") from error
        raise SpawnFailed(machine_fault(error)) from error
    finally:
        for descriptor in held:
            os.close(descriptor)


def machine_fault(error: OSError) -> str:
    """The error in a few words, with the file that it is about."""
    return f"{error.strerror}: {error.filename}" if error.filename else f"{error.strerror}"


def _open_log(path: str) -> int:
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, flags, 0o600)
    except OSError as error:
        if os.path.lexists(path):
            # Of this attempt alone: to close the gate for it would keep everybody waiting.
            raise CannotStart(f"its log: {machine_fault(error)}") from error
        raise


def _high(descriptor: int, held: list[int]) -> int:
    """The same file above the descriptors that the agent gets as 0 to 3, so that no dup2 meets itself."""
    if descriptor >= _DESCRIPTORS_FROM:
        held.append(descriptor)
        return descriptor
    import fcntl

    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTORS_FROM)
    finally:
        os.close(descriptor)
    held.append(moved)
    return moved


def leader_of(pid: int | None) -> Process | None:
    """The shell of an attempt that is alive (its file is locked), with its start time."""
    return None if pid is None else processes.identify(pid)


def signal_tree(leader: Process | None, mark: int | str, signal_number: int) -> None:
    """Signal an attempt's group at once, then whoever of its session is in another group.

    `mark` is as for left_behind().
    """
    if leader is None:
        return
    alive = processes.is_alive(leader)
    if alive:
        try:
            os.killpg(leader.pid, signal_number)
            if signal_number == signal.SIGTERM:
                os.killpg(leader.pid, signal.SIGCONT)  # a stopped process takes TERM only when it goes on
        except (ProcessLookupError, PermissionError):
            pass
    processes.send_all(left_behind(leader.pid, mark, alive), signal_number)


def left_behind(leader: int, mark: int | str, leader_alive: bool) -> list[Process]:
    """What runs in an attempt's session beside its shell.

    When the shell is gone, its number may lead somebody else's session by now: a member counts only if
    it carries the attempt's token, where the platform can tell. `mark`: the token, or a whole entry of the
    environment (``K=V``) that stands for one.
    """
    if not leader_alive and platform.start_time(leader) is not None:
        return []  # the number was given out again, so the old session has no members
    found = processes.session_of(leader)
    if leader_alive:
        return found
    entry = f"CLAWQ_TOKEN={mark}" if isinstance(mark, int) else mark
    return [process for process in found if platform.carries(process.pid, entry) is not False]
