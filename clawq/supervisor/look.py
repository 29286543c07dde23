"""Looking at the agents: what their files, beats and clocks say, without writing anything down.

A finding is a fact that the next transaction records. Nothing here depends on whether it succeeds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from clawq.host import agent as host_agent
from clawq.host import attempt_file, footprint, platform, processes
from clawq.paths import Home
from clawq.rules import liveness
from clawq.rules.footprint import grown_beyond
from clawq.supervisor.agents import Agent, job_file
from clawq.supervisor.end import KILL_AGAIN_MS, SWEEP_PAUSE_MS
from clawq.supervisor.evidence import Found, gather, has_left_traces

FIRST_LOOK_MS = 15
"""After a spawn: the shell needs about this long to say that the agent runs."""
SLOWEST_LOOK_MS = 1_000


@dataclass(slots=True)
class Ended:
    agent: Agent
    found: Found


@dataclass(slots=True)
class Findings:
    """What one look at all agents found."""

    started: list[Agent] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    overdue: list[tuple[Agent, str]] = field(default_factory=list)
    deserted: list[Agent] = field(default_factory=list)
    """They wait, and nobody is in their `clawq wait`."""
    look_again: int | None = None
    """On the monotonic clock, ms."""

    def again_at(self, when: int) -> None:
        self.look_again = when if self.look_again is None else min(self.look_again, when)

    def __bool__(self) -> bool:
        return bool(self.started or self.ended or self.overdue or self.deserted)


def look(agents: list[Agent], home: Home, wall: int, mono: int) -> Findings:
    """Look at every agent once. `wall` is epoch ms, `mono` ms of the monotonic clock."""
    processes.reap()
    findings = Findings()
    for agent in agents:
        if agent.verdict is None:
            _look_at(agent, home, findings, wall, mono)
    ended = [agent for agent in agents if agent.verdict is not None]
    if ended:
        # Asked once for all of them, and only now: what a shell leaves comes to us when it has gone.
        shells = {agent.pid for agent in agents if agent.owned}
        orphans = [pid for pid in platform.own_children() if pid not in shells]
        for agent in ended:
            _sweep(agent, orphans, home, findings, wall, mono)
    return findings


def _look_at(agent: Agent, home: Home, findings: Findings, wall: int, mono: int) -> None:
    locked = agent.probe is not None and attempt_file.is_locked(agent.probe)
    if agent.probe is not None and not (locked and agent.running):
        agent.reading = attempt_file.read(agent.probe)
    evidence = liveness.Evidence(
        locked=locked,
        ran=agent.reading.pid is not None,
        exit_code=agent.reading.exit_code,
        same_boot=agent.same_boot,
        known_running=agent.running,
    )
    verdict = liveness.judge(evidence)
    if verdict == "never_ran" and has_left_traces(agent, home):
        # The mark that it ran is gone: agents can reach the run folder.
        verdict = liveness.judge(evidence._replace(known_running=True))
    if verdict != "alive":
        agent.verdict = verdict
        agent.look_pause = 0
        return
    if not agent.running:
        _look_for_start(agent, findings, mono)
    if agent.waiting:
        agent.last_sign = mono
    else:
        _notice_signs(agent, home, wall, mono)
    if agent.kill_reason is None and not agent.disowned:
        deadline = None if agent.deadline_at is None else mono + agent.deadline_at - wall
        timeout_ms = 0 if agent.waiting else agent.timeout_ms
        clocks = (agent.started, agent.last_sign, agent.lease_ms, timeout_ms, deadline)
        reason = liveness.overdue(mono, *clocks)
        if reason is not None:
            findings.overdue.append((agent, reason))
        else:
            findings.again_at(max(mono + 1, liveness.next_check(*clocks)))


def measure_trees(agents: Iterable[Agent], home: Home, findings: Findings, wall: int, mono: int) -> None:
    """What each agent's tree uses now; those that have outgrown their kind's bounds are overdue."""
    alive = {agent.token: agent for agent in agents if agent.verdict is None}
    for token, usage in _survey(alive.values()).items():
        agent = alive[token]
        agent.remember(usage.outside, home)
        agent.used = (usage.procs, usage.mb)
        if agent.cpu is not None and liveness.worked(usage.cpu_ms, agent.cpu[0], mono - agent.cpu[1]):
            agent.worked_at = wall
        agent.cpu = (usage.cpu_ms, mono)
        agent.peak_procs = max(agent.peak_procs, usage.procs)
        agent.peak_mb = max(agent.peak_mb, usage.mb)
        over = grown_beyond(usage.procs, usage.mb, agent.max_procs, agent.max_mb)
        if over is not None and agent.kill_reason is None:
            agent.over = over
            findings.overdue.append((agent, "over_footprint"))


def see_outside(agents: Iterable[Agent], home: Home) -> None:
    """A last look before these get their first signal: parents that die tell no more of their children."""
    alive = {agent.token: agent for agent in agents if agent.verdict is None}
    for token, usage in _survey(alive.values()).items():
        alive[token].remember(usage.outside, home)


def _survey(agents: Iterable[Agent]) -> dict[int, footprint.Usage]:
    there = [agent for agent in agents if agent.pid is not None and agent.same_boot]
    leaders = {agent.token: agent.pid for agent in there if agent.pid is not None}
    return footprint.measure(leaders, {agent.token: agent.outside for agent in there})


def _look_for_start(agent: Agent, findings: Findings, mono: int) -> None:
    if agent.reading.pid is not None:
        agent.pid = agent.reading.pid
        agent.leader = agent.leader or host_agent.leader_of(agent.pid)
        findings.started.append(agent)
        return
    agent.look_pause = min(max(FIRST_LOOK_MS, agent.look_pause * 2), SLOWEST_LOOK_MS)
    findings.again_at(mono + agent.look_pause)


def _notice_signs(agent: Agent, home: Home, wall: int, mono: int) -> None:
    """Bring `last_sign` up to date. Asked in full only when a quarter of the lease is over."""
    if mono - agent.last_sign < agent.lease_ms // 4:
        findable = agent.last_sign
    elif agent.heartbeat == "process":
        findable = agent.last_sign if _is_stopped(agent) else mono
    else:
        findable = _last_change(agent, home, wall, mono)
    agent.last_sign = max(agent.last_sign, findable)


def _last_change(agent: Agent, home: Home, wall: int, mono: int) -> int:
    """When the file that its signs go to last changed, on the monotonic clock.

    Only a file that has changed since we looked is asked for its time, and believed within that span: a
    wall clock that was set back meanwhile would make an old sign one of tomorrow, and keep a dead one alive.
    """
    path = agent.log if agent.heartbeat == "output" else job_file(home, agent.token, "heartbeat")
    try:
        changed = os.stat(path).st_mtime_ns
    except OSError:
        return agent.last_sign
    looked, agent.sign_looked = agent.sign_looked, mono
    if changed == agent.sign_seen:
        return agent.last_sign
    agent.sign_seen = changed
    return max(mono - max(0, wall - changed // 1_000_000), looked or agent.last_sign)


def _is_stopped(agent: Agent) -> bool:
    return agent.pid is not None and processes.all_stopped(processes.session_of(agent.pid))


def _sweep(
    agent: Agent, orphans: Collection[int], home: Home, findings: Findings, wall: int, mono: int
) -> None:
    """End what an attempt left behind; report its end once nothing that can be found is left."""
    left = left_over(agent, orphans)
    if not left:
        findings.ended.append(Ended(agent, gather(agent, home, wall)))
        return
    if agent.kill_after is None or not agent.term_sent:
        agent.term_sent = True
        agent.kill_after = mono + agent.grace_ms
        sign = signal.SIGTERM
    elif mono >= agent.kill_after:
        agent.kill_after = mono + KILL_AGAIN_MS
        sign = signal.SIGKILL
    else:
        findings.again_at(min(agent.kill_after, mono + SWEEP_PAUSE_MS))
        return
    processes.send_all(left, sign)
    findings.again_at(mono + SWEEP_PAUSE_MS)


def left_over(agent: Agent, orphans: Collection[int]) -> list[processes.Process]:
    """What still runs of an attempt whose shell is gone. `orphans`: our children but for shells."""
    if agent.pid is None or not agent.same_boot:
        return []
    found: list[processes.Process] = []
    strays: list[int] = []
    if not platform.LINUX:
        session = host_agent.left_behind(agent.pid, agent.token, leader_alive=False)
    else:
        # Its orphans came to us: two cheap questions spare the walk over every process. Those of an attempt
        # that was taken over came to init, and only what they carry tells whose they are.
        if agent.owned:
            strays = [pid for pid in orphans if _belongs(pid, agent)]
        else:
            strays = [pid for pid in platform.all_pids() if pid != os.getpid() and _carries_token(pid, agent)]
        there = strays or not agent.owned or processes.group_exists(agent.pid)
        session = host_agent.left_behind(agent.pid, agent.token, leader_alive=False) if there else []
        found = processes.descendants_of(strays)
    seen = [process for process in agent.outside if processes.is_alive(process)]
    if session or seen:
        agent.outside = tuple(footprint.kin_of([*session, *seen])[: footprint.MOST_OUTSIDE])
    return list({*found, *session, *seen, *agent.outside} if session or seen else found)


def _belongs(pid: int, agent: Agent) -> bool:
    try:
        if os.getsid(pid) == agent.pid:
            return True
    except OSError:
        return False
    return _carries_token(pid, agent)


def _carries_token(pid: int, agent: Agent) -> bool:
    return platform.carries(pid, f"CLAWQ_TOKEN={agent.token}") is True
