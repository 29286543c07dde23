"""What the supervisor remembers of each attempt under way. The attempt's file, not this, tells its life."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

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
    look_after: int = 0
    """Not to be looked at for its first mark before this."""
    look_pause: int = field(default=0)
    verdict: Verdict | None = None
    """Set once its shell is gone."""
    reading: Reading = attempt_file.NOTHING
    used: tuple[int, int] | None = None
    """(processes, MiB) of its whole tree at the last look."""
    peak_procs: int = 0
    peak_mb: int = 0
    max_procs: int | None = None
    max_mb: int | None = None
    over: str | None = None
    """How it has outgrown these."""
    log_bytes: int = 0
    log_looked: int | None = None
    """How long its log was at the last look, and when that was."""
    classify: str = "none"
    """Who reads its output at the end, and what is looked for in it besides."""
    errors: tuple[ErrorPattern, ...] = ()
    disowned: bool = False
    """The database says that it is no longer ours: to be ended, its result thrown away."""

    def follow(self, kind: Kind) -> None:
        """Take over from its kind what is not frozen in the attempt's row."""
        self.max_procs, self.max_mb = kind.max_procs, kind.max_mb
        self.classify, self.errors = kind.classify, kind.errors

    def attempt_path(self, home: Home) -> str:
        return attempt_file.path_of(home.run, self.token)

    def files(self, home: Home) -> list[str]:
        """Everything of this attempt in the run folder."""
        return [self.attempt_path(home), *job_files(home, self.token).values()]


JOB_FILES = ("payload", "heartbeat", "result")


def job_files(home: Home, token: int) -> dict[str, str]:
    """The files that an agent is told of, by what they are for."""
    return {name: os.path.join(home.run, f"{token}.{name}") for name in JOB_FILES}
