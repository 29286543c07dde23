"""What a supervisor remembers between two turns. All of it can be found again after a crash."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import apsw

from clawq.host.load import HostSample
from clawq.paths import Home
from clawq.settings import Settings
from clawq.supervisor.agents import Agent
from clawq.supervisor.notices import Notices
from clawq.supervisor.probes import Probes
from clawq.supervisor.start import NotStarted

RUN, HANDOVER, UPGRADE, DRAIN, NOW = "run", "handover", "upgrade", "drain", "now"
"""How it goes on: starting jobs; leaving the agents alone, for another or for its newer self; finishing them;
ending them."""
WAYS_TO_STOP = (HANDOVER, UPGRADE, DRAIN, NOW)


@dataclass(slots=True)
class State:
    """Times ending in ``_until`` or ``_due`` are epoch ms."""

    home: Home
    db: apsw.Connection
    settings: Settings
    form: str
    """Which compiled configuration `settings` is."""
    boot_id: str
    until_idle: bool
    probes: Probes
    notices: Notices
    default_max_procs: int | None
    mode: str = RUN
    agents: dict[int, Agent] = field(default_factory=dict)
    not_started: list[NotStarted] = field(default_factory=list)
    """Claims whose spawn failed, for the next transaction."""
    sample: HostSample | None = None
    observe: bool = False
    """Asked for on the command line; clawq.toml may ask for it too."""
    ramp_since: int | None = None
    """Epoch ms since when starts come one by one, after a crash or a wake; None when they do not."""
    ramp_started: int = 0
    spawn_closed_until: int = 0
    set_back: bool = True
    """The clock may be behind what is written down: it was set, or ran on while nobody looked."""
    count_at: int = 0
    sample_at: int = 0
    """When moves are counted again, and when the next sample is due, ms of the monotonic clock."""
    next_due: int = 0
    """When the calendar alone next changes something."""

    def not_after(self, now: int) -> None:
        """The clock was set back: what began by the one that was ahead begins now."""
        self.set_back = True
        if self.ramp_since is not None:
            self.ramp_since = min(self.ramp_since, now)
        self.spawn_closed_until = min(self.spawn_closed_until, now + self.settings.host.retry_after_ms)


def wall_ms() -> int:
    """Epoch ms, by a clock that people set."""
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    """By a clock that only goes on, and may stand still while the machine sleeps."""
    return time.monotonic_ns() // 1_000_000
