"""What the agents write: their logs are kept small, and one that fills the disk is ended."""

from __future__ import annotations

from collections.abc import Iterable

from clawq.host import load, logs
from clawq.paths import Home, size_of
from clawq.rules.footprint import WRITES_MUCH_MB, fills_the_disk
from clawq.settings import Settings, gate
from clawq.supervisor.agents import Agent
from clawq.supervisor.look import Findings

LOOK_MS = 1_000
"""The loop turns as often anyway, and a look is one stat() for each agent."""
SOONEST_MS = 100
HURRIED_MB = 4
"""What is left of the log of one that is to be ended: its end is written down only where there is room."""
MB = 1 << 20


def tend(agents: Iterable[Agent], settings: Settings, home: Home, findings: Findings, mono: int) -> int:
    """Trim the logs that have grown too long; when the disk is nearly full, the fastest writer is overdue.

    When to look again, on the monotonic clock in ms: sooner while one grows so fast that it would be twice
    too long by then.
    """
    most = settings.limits.log_max_mb * MB
    again, writers = mono + LOOK_MS, {}
    living = [agent for agent in agents if agent.verdict is None]
    for agent in living:
        rate = _rate(agent, mono)
        if agent.log_bytes > most and logs.trim(agent.log, most) is not None:
            agent.log_bytes = size_of(agent.log)
        if rate > 0:
            left = max(0, 2 * most - agent.log_bytes)
            again = min(again, mono + max(SOONEST_MS, int(left / rate)))
        if agent.kill_reason is None and not agent.disowned:
            writers[agent.token] = rate * 1000 / MB
    _look_at_disk(living, writers, settings, home, findings)
    return again


def tidy(agent: Agent, settings: Settings) -> None:
    """The same once it has ended, and was looked at for the last time."""
    most = settings.limits.log_max_mb * MB
    if agent.log_bytes > most:
        logs.trim(agent.log, most)


def _look_at_disk(
    agents: list[Agent], writers: dict[int, float], settings: Settings, home: Home, findings: Findings
) -> None:
    floor = gate(settings.host.min_free_disk_mb)
    # While one is being ended for it, its room comes back; nobody else has to go.
    ending = any(agent.kill_reason == "filled_disk" for agent in agents)
    if floor is None or ending or max(writers.values(), default=0.0) < WRITES_MUCH_MB:
        return
    token = fills_the_disk(writers, load.free_disk_mb(home.logs), floor)
    for agent in agents:
        if agent.token == token:
            agent.over = f"wrote {writers[token]:.0f} MB/s while the disk was nearly full"
            findings.overdue.append((agent, "filled_disk"))
            if logs.trim(agent.log, min(settings.limits.log_max_mb, HURRIED_MB) * MB) is not None:
                agent.log_bytes = size_of(agent.log)


def _rate(agent: Agent, mono: int) -> float:
    """Bytes per ms since the last look, at the first one since its start."""
    size, before = agent.log_size(), agent.log_bytes
    looked = agent.started if agent.log_looked is None else agent.log_looked
    agent.log_bytes, agent.log_looked = size, mono
    return max(0, size - before) / max(1, mono - looked)
