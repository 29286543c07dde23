"""Finding and ending the processes of an attempt, and never anybody else's.

A pid is signalled only after its kernel start time was compared, since pids are used again.
"""

from __future__ import annotations

import os

from clawq.host import platform
from clawq.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Process(NamedTuple):
    pid: int
    started: str


def identify(pid: int) -> Process | None:
    """`pid` with its start time; None when it is gone or a zombie."""
    if platform.run_state(pid) in (None, "Z"):
        return None
    started = platform.start_time(pid)
    return None if started is None else Process(pid, started)


def is_alive(process: Process) -> bool:
    """Does this very process, not another one with its pid, still run?"""
    return platform.start_time(process.pid) == process.started and platform.run_state(process.pid) != "Z"


def send(process: Process, signal_number: int) -> bool:
    """Signal exactly this process; False when it is gone or the pid is another's by now."""
    import signal

    try:
        if not hasattr(os, "pidfd_open"):
            if platform.start_time(process.pid) != process.started:
                return False
            os.kill(process.pid, signal_number)
            return True
        handle = os.pidfd_open(process.pid)
        try:
            if platform.start_time(process.pid) != process.started:
                return False
            signal.pidfd_send_signal(handle, signal_number)
            return True
        finally:
            os.close(handle)
    except (ProcessLookupError, PermissionError):
        return False


def send_all(targets: Iterable[Process], signal_number: int) -> None:
    """Signal exactly these; a stopped one takes TERM only when it goes on."""
    import signal

    for process in targets:
        send(process, signal_number)
        if signal_number == signal.SIGTERM:
            send(process, signal.SIGCONT)


def session_of(leader: int) -> list[Process]:
    """Every process in the session or group that `leader` leads or led, without the leader itself."""
    found = []
    for pid in platform.all_pids():
        if pid == leader:
            continue
        try:
            if os.getsid(pid) != leader and os.getpgid(pid) != leader:
                continue
        except (ProcessLookupError, PermissionError):
            continue
        process = identify(pid)
        if process is not None:
            found.append(process)
    return found


def descendants_of(pids: list[int]) -> list[Process]:
    """These processes and everything below them (Linux; elsewhere just themselves)."""
    found, ahead = [], list(pids)
    while ahead:
        pid = ahead.pop()
        process = identify(pid)
        if process is not None:
            found.append(process)
        ahead += platform.own_children(pid)
    return found


def group_exists(leader: int) -> bool:
    """Does the process group still have members? Needs no walk over all processes."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def all_stopped(processes: list[Process]) -> bool:
    """Is every one of them stopped by a signal (SIGSTOP, SIGTTIN)? False for none."""
    states = [platform.run_state(process.pid) for process in processes]
    known = [state for state in states if state is not None]
    return bool(known) and all(state == "T" for state in known)


def reap() -> set[int]:
    """Collect every child that ended; their pids. Their exit codes are in the attempt files."""
    ended: set[int] = set()
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.add(pid)
