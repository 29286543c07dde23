"""What the supervisor remembers of each attempt under way. The attempt's file, not this, tells its life."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

from clawq.host import attempt_file
from clawq.host.attempt_file import Reading
from clawq.host.processes import Process
from clawq.paths import Home
from clawq.rules.liveness import Verdict
from clawq.settings import ErrorPattern, Kind


@dataclass(slots=True)
class Agent:
    """An attempt under way. Times ending in ``_at`` are epoch ms, the others ms of the monotonic clock."""

    token: int
    job_id: int
    number: int
    kind: str
    log: str
    lease_ms: int
    grace_ms: int
    timeout_ms: int
    heartbeat: str
    deadline_at: int | None
    started: int
    last_sign: int
    owned: bool
    """Our own child, not one that an earlier supervisor started."""
    pid: int | None
    """Of its shell, which leads its group and session."""
    probe: int | None
    """A descriptor of its attempt file; None when the file is gone."""
    same_boot: bool = True
    leader: Process | None = None
    running: bool = False
    """Recorded in the database as `running`."""
    kill_reason: str | None = None
    kill_at: int | None = None
    term_sent: bool = False
    kill_after: int | None = None
    look_pause: int = 0
    verdict: Verdict | None = None
    """Set once its shell is gone."""
    reading: Reading = attempt_file.NOTHING
    sign_seen: int = 0
    """When the file of its signs had changed at the last look, epoch ns, and when that look was."""
    sign_looked: int | None = None
    outside: tuple[Process, ...] = ()
    """Descendants in sessions of their own that a look has seen: once their parents are gone nothing else
    tells whose they are."""
    used: tuple[int, int] | None = None
    """(processes, MiB) of its whole tree at the last look."""
    cpu: tuple[int, int] | None = None
    """(CPU time in ms, when) of its whole tree at the last look."""
    worked_at: int | None = None
    """When it was last seen to use CPU time, epoch ms."""
    peak_procs: int = 0
    peak_mb: int = 0
    max_procs: int | None = None
    max_mb: int | None = None
    over: str | None = None
    """How it has outgrown these."""
    log_bytes: int = 0
    log_looked: int | None = None
    """How long its log was at the last look, and when that was."""
    left_result: bool = False
    """At its end there was something in its result file."""
    spoke_at: int | None = None
    """When it first wrote, epoch ms; None too when it had begun before we looked."""
    classify: str = "none"
    """Who reads its output at the end, and what is looked for in it besides."""
    errors: tuple[ErrorPattern, ...] = ()
    waiting: bool = False
    """In `clawq wait`: neither its timeout nor its lease counts."""
    waited_ms: int = 0
    """In waits that are over; `started` is that much later than it was."""
    waiter: int | None = None
    """The process whose death is news while it waits."""
    disowned: bool = False
    """The database says that it is no longer ours: to be ended, its result thrown away."""

    def follow(self, kind: Kind) -> None:
        """Take over from its kind what is not frozen in the attempt's row."""
        self.max_procs, self.max_mb = kind.max_procs, kind.max_mb
        self.classify, self.errors = kind.classify, kind.errors

    def slept(self, jump_ms: int, now: int) -> None:
        """The machine stood still for so long until `now`, epoch ms: that was no silence of the agent's."""
        try:
            wrote = os.stat(self.log).st_mtime_ns // 1_000_000
        except OSError:
            wrote = 0
        if wrote or self.worked_at:
            self.worked_at = min(now, max(wrote, self.worked_at or 0) + jump_ms)

    def log_size(self) -> int:
        """Bytes. Seen to be no longer empty, it was written to since the last look."""
        try:
            seen = os.stat(self.log)
        except OSError:
            return 0
        if seen.st_size and self.spoke_at is None and self.owned:
            self.spoke_at = seen.st_mtime_ns // 1_000_000
        return seen.st_size

    def attempt_path(self, home: Home) -> str:
        return attempt_file.path_of(home.run, self.token)

    def remember(self, outside: tuple[Process, ...], home: Home) -> None:
        """What a look has seen outside of its session, kept where the next supervisor finds it too.

        A disk that is full costs that one's knowledge of it, not ours.
        """
        if outside == self.outside:
            return
        self.outside = outside
        path = outside_file(home, self.token)
        with suppress(OSError):
            with open(os.open(path + ".new", _OVERWRITE, 0o600), "w", encoding="ascii") as file:
                file.writelines(f"{process.pid} {process.started}\n" for process in outside)
            os.replace(path + ".new", path)

    def recall(self, home: Home) -> None:
        """Take over what an earlier supervisor of this boot has seen."""
        try:
            with open(
                os.open(outside_file(home, self.token), _READ), encoding="ascii", errors="replace"
            ) as file:
                words = [line.split() for line in file]
        except OSError:
            return
        whole = [line for line in words if len(line) == 2 and line[0].isdecimal() and len(line[0]) < 10]
        self.outside = tuple(Process(int(pid), started) for pid, started in whole)


# Agents can reach the run folder: a pipe under such a name must not hold up the supervisor.
_READ = os.O_RDONLY | os.O_NONBLOCK
_OVERWRITE = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK


def outside_file(home: Home, token: int) -> str:
    """Where it is kept which processes an attempt has outside of its session."""
    return os.path.join(home.run, f"{token}.outside")


JOB_FILES = ("payload", "heartbeat", "result", "wait")


def job_files(home: Home, token: int) -> dict[str, str]:
    """The files that an agent is told of, by what they are for."""
    stem = f"{home.run}/{token}."
    return {name: stem + name for name in JOB_FILES}


def job_file(home: Home, token: int, name: str) -> str:
    """One of them."""
    return f"{home.run}/{token}.{name}"
