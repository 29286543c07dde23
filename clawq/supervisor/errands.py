"""Small programs that the supervisor runs for itself, probes and notices: bounded, and never waited for.

Each is started like an agent, under the shell that keeps a locked file: its end and its exit code are read
there, so that whoever collects our children need not know of it. It has no token, and is no attempt. At most
two of a sort run at once, for thirty seconds each; what one leaves in the background is ended with it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from clawq.errors import UsageError
from clawq.host import agent as host_agent
from clawq.host import attempt_file, output, platform, processes
from clawq.host.agent import CannotStart, SpawnFailed
from clawq.host.processes import Process
from clawq.paths import size_of
from clawq.supervisor.end import KILL_AGAIN_MS, SWEEP_PAUSE_MS, remove
from clawq.supervisor.environ import encoded

AT_ONCE = 2
WITHIN_MS = 30_000
GRACE_MS = 2_000
MOST_OUTPUT = 1 << 20
"""Bytes; only the last line is kept."""
AGAIN_MS = 5_000
"""After a start for which the machine had no room."""
AGENTS_ONLY = ("CLAWQ_TOKEN", "CLAWQ_HEARTBEAT_FILE", "CLAWQ_RESULT_FILE", "CLAWQ_DEADLINE")

Key = TypeVar("Key", bound=Hashable)


class Answer(NamedTuple):
    """``exit_code`` None: it gave none, and ``said`` says why; else its last line."""

    exit_code: int | None
    said: str


class Order(NamedTuple):
    """What to run."""

    argv: list[str]
    cwd: str
    env: dict[str, str]

    def at(self, path: str) -> Order:
        """It needs no files of its own."""
        return self


@dataclass(slots=True)
class Errand:
    """One under way. Times are ms of the monotonic clock."""

    path: str
    """Of its files in the run folder, without what tells them apart."""
    mark: str
    pid: int
    lock: int
    started: int
    leader: Process | None = None
    failure: str | None = None
    """Why it is being ended."""
    signal_at: int | None = None
    """When the next signal is due."""


class Errands(Generic[Key]):
    """All of one sort: poll() looks and collects, begin() starts one, stop() ends all.

    `sort` names their files in the folder `run`, and in capitals the variable that their processes carry.
    """

    def __init__(self, run: str, sort: str) -> None:
        self.run = run
        self.prefix = f"{sort}."
        self.variable = f"CLAWQ_{sort.upper()}"
        self.under_way: dict[Key, Errand] = {}
        self.look_again: int | None = None
        self.closed_until: int | None = None
        """The machine had no room for one: none is begun before."""

    @property
    def room(self) -> int:
        return max(0, AT_ONCE - len(self.under_way))

    def poll(self, mono: int) -> dict[Key, Answer | None]:
        """Look at each once, end those that hang; what ended, None for one that never ran. After reap()."""
        self.look_again = self.closed_until
        ended: dict[Key, Answer | None] = {}
        for key, errand in list(self.under_way.items()):
            if attempt_file.is_locked(errand.lock):
                self._keep_in_bounds(errand, mono)
            elif not self._sweep(errand, mono):
                ended[key] = self._collect(errand, mono)
                del self.under_way[key]
        return ended

    def is_closed(self, mono: int) -> bool:
        return self.closed_until is not None and mono < self.closed_until

    def begin(self, key: Key, name: str, prepare: Callable[[str], Order], mono: int) -> Answer | None:
        """Start one. `prepare` gets the path that its files' names begin with.

        An Answer: it cannot be started at all. None: it is under way, or the machine had no room.
        """
        path = os.path.join(self.run, self.prefix + name)
        errand = Errand(path, self._mark(self.prefix + name), 0, -1, mono)
        try:
            argv, cwd, env = prepare(path)
            for each in AGENTS_ONLY:
                env.pop(each, None)
            variable, _, value = errand.mark.partition("=")
            env[variable] = value
            errand.pid, errand.lock = host_agent.spawn(
                argv, cwd, encoded(env), path + attempt_file.SUFFIX, f"{path}.log"
            )
        except SpawnFailed:
            _forget(errand)
            self.closed_until = self.look_again = mono + AGAIN_MS
        except (CannotStart, UsageError, OSError, ValueError) as failure:
            _forget(errand)
            self.look_again = mono
            return Answer(None, output.one_line(f"cannot be started: {failure}"))
        else:
            self.under_way[key] = errand
            self._look_at(mono + WITHIN_MS)
        return None

    def abandon(self, key: Key, why: str) -> None:
        """End it at the next look: nobody wants its answer any more."""
        errand = self.under_way[key]
        if errand.failure is None:
            errand.failure, errand.signal_at = why, 0

    def stop(self) -> None:
        """End all at once."""
        for errand in self.under_way.values():
            errand.leader = errand.leader or host_agent.leader_of(errand.pid)
            host_agent.signal_tree(errand.leader, errand.mark, signal.SIGKILL)
            _forget(errand)
        self.under_way.clear()

    def release(self) -> None:
        """Let them end by themselves: they are short, and whoever is to be told wants to know."""
        for errand in self.under_way.values():
            os.close(errand.lock)
        self.under_way.clear()

    def end_leftovers(self, spare_ms: int = 0) -> bool:
        """End those of an earlier supervisor that are older than `spare_ms`, and remove their files.

        Whether there are some left, for which this has to be called again.
        """
        spared = time.time() - spare_ms / 1000
        own = tuple(f"{errand.path}." for errand in self.under_way.values())
        some = False
        for name in os.listdir(self.run):
            path = os.path.join(self.run, name)
            if not name.startswith(self.prefix) or path.startswith(own):
                continue
            lock = attempt_file.open_probe(path) if name.endswith(attempt_file.SUFFIX) else None
            if lock is not None:
                young = spare_ms and os.fstat(lock).st_mtime >= spared
                if young and attempt_file.is_locked(lock):
                    os.close(lock)
                    some = True
                    continue
                if attempt_file.is_locked(lock):
                    # The shell that holds the lock lives, so its number is still its own.
                    leader = host_agent.leader_of(attempt_file.read(lock).pid)
                    host_agent.signal_tree(leader, self._mark(name), signal.SIGKILL)
                os.close(lock)
            remove(path)
        return some

    # ------------------------------------------------------------------ one of them

    def _keep_in_bounds(self, errand: Errand, mono: int) -> None:
        """Of one that lives: TERM when it takes too long or writes too much, KILL after the grace."""
        if errand.failure is None:
            if mono - errand.started >= WITHIN_MS:
                errand.failure = f"did not answer within {WITHIN_MS // 1000} s"
            elif size_of(f"{errand.path}.log") > MOST_OUTPUT:
                errand.failure = "wrote more than anybody reads"
            else:
                self._look_at(errand.started + WITHIN_MS)
                return
            errand.signal_at = mono
        if errand.signal_at is not None and mono >= errand.signal_at:
            first = errand.leader is None
            errand.leader = errand.leader or host_agent.leader_of(errand.pid)
            number = signal.SIGTERM if first else signal.SIGKILL
            host_agent.signal_tree(errand.leader, errand.mark, number)
            errand.signal_at = mono + (GRACE_MS if first else KILL_AGAIN_MS)
        self._look_at(errand.signal_at or mono)

    def _sweep(self, errand: Errand, mono: int) -> bool:
        """End what it left behind; whether there was anything."""
        left = host_agent.left_behind(errand.pid, errand.mark, leader_alive=False)
        # Orphans in sessions of their own have come to us (Linux), and carry its mark.
        strays = [pid for pid in platform.own_children() if platform.carries(pid, errand.mark) is True]
        left += processes.descendants_of(strays)
        processes.send_all(left, signal.SIGKILL)
        if left:
            self._look_at(mono + SWEEP_PAUSE_MS)
        return bool(left)

    def _collect(self, errand: Errand, mono: int) -> Answer | None:
        reading = attempt_file.read(errand.lock)
        last = output.last_lines(f"{errand.path}.log").splitlines()[-1:]
        _forget(errand)
        if errand.failure is not None:
            return Answer(None, errand.failure)
        if reading.exit_code is None:
            return Answer(None, "was killed")
        if reading.pid is None:
            self.closed_until = mono + AGAIN_MS  # its shell could not fork
            self._look_at(self.closed_until)
            return None
        return Answer(reading.exit_code, output.one_line(last[0]) if last else "")

    def _look_at(self, at: int) -> None:
        self.look_again = at if self.look_again is None else min(self.look_again, at)

    def _mark(self, name: str) -> str:
        """The entry of the environment that its processes are known by."""
        return f"{self.variable}={name.removesuffix(attempt_file.SUFFIX)}"


def _forget(errand: Errand) -> None:
    if errand.lock >= 0:
        os.close(errand.lock)
    for suffix in (attempt_file.SUFFIX, ".log", ".payload"):
        remove(errand.path + suffix)
