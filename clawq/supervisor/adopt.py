"""Taking over what an earlier supervisor started: its attempts, judged by their files, and its leavings."""

from __future__ import annotations

import os
from collections.abc import Container
from contextlib import suppress

from clawq.host import attempt_file, platform
from clawq.host.processes import Process
from clawq.paths import Home, utf8_path
from clawq.store import attempts
from clawq.store.attempts import LiveAttempt
from clawq.store.connection import Immediate
from clawq.supervisor.agents import Agent
from clawq.supervisor.state import State, mono_ms, wall_ms
from clawq.supervisor.wake import Wakeups


def take_over(state: State, wakeups: Wakeups) -> None:
    """Adopt every attempt that the database calls live, and clear what no attempt needs any more."""
    now, mono = wall_ms(), mono_ms()
    with Immediate(state.db):
        attempts.forget_stop(state.db)
        attempts.close_disowned(state.db, now)
        attempts.keep_path(state.db, utf8_path() or os.defpath)
        rows = attempts.live(state.db)
    for row in rows:
        agent = adopt(row, state.home, state.boot_id, now, mono)
        agent.follow(state.settings.kind(row.kind))
        state.agents[row.token] = agent
        watch = exit_watch(agent)
        if watch is not None:
            wakeups.watch(row.token, watch)
    clear_run_folder(state.home, state.agents)
    state.probes.end_leftovers()
    state.notices.end_leftovers(mono)


def adopt(row: LiveAttempt, home: Home, boot_id: str, wall: int, mono: int) -> Agent:
    """An earlier supervisor's attempt, to be judged by its file like our own."""
    age = max(0, wall - (row.started_at or row.claimed_at) - row.waited_ms)
    agent = Agent(
        token=row.token,
        job_id=row.job_id,
        number=row.number,
        kind=row.kind,
        log=os.path.join(home.logs, row.log),
        lease_ms=row.lease_ms,
        grace_ms=row.grace_ms,
        timeout_ms=row.timeout_ms,
        heartbeat=row.heartbeat,
        deadline_at=row.deadline_at,
        started=mono - age,
        last_sign=mono,
        owned=False,
        pid=row.pid,
        probe=attempt_file.open_probe(attempt_file.path_of(home.run, row.token)),
        same_boot=row.boot_id == boot_id,
        running=row.state != "starting",
        waiting=row.state == "waiting",
        waited_ms=row.waited_ms,
        kill_reason=row.kill_reason,
        kill_at=row.kill_at,
    )
    if agent.same_boot:
        agent.recall(home)
    if agent.same_boot and row.pid is not None and row.pid_started is not None:
        agent.leader = Process(row.pid, row.pid_started)
    elif agent.probe is not None and agent.same_boot:
        agent.pid = attempt_file.read(agent.probe).pid
    return agent


def exit_watch(agent: Agent) -> int | None:
    """A descriptor that tells the end of an adopted agent's shell; our own children send SIGCHLD."""
    if agent.owned or agent.pid is None or not agent.same_boot:
        return None
    return platform.exit_watch(agent.pid)


def clear_run_folder(home: Home, agents: Container[int]) -> None:
    """Remove files of attempts that the database no longer calls live, but never a locked one.

    What is no plain file named by a token is none of ours.
    """
    for name in os.listdir(home.run):
        token = attempt_file.token_of(name)
        if token is None or token in agents:
            continue
        path = attempt_file.path_of(home.run, token)
        probe = attempt_file.open_probe(path) if os.path.isfile(path) else None
        if probe is not None:
            locked = attempt_file.is_locked(probe)
            os.close(probe)
            if locked:
                continue
        with suppress(OSError):
            os.unlink(os.path.join(home.run, name))
