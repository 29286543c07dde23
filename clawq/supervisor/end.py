"""Ending an agent that is alive, and forgetting one whose end is recorded."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from clawq.host import agent as host_agent
from clawq.host import attempt_file, processes
from clawq.paths import Home
from clawq.supervisor.agents import Agent, job_file

KILL_AGAIN_MS = 1_000
SWEEP_PAUSE_MS = 50
"""Between looks at what is left behind by one that has ended."""
SPENT_MS = 500
MOST_SPENT = 4_000
"""Attempts, most with one file of 4 KB."""


def is_to_end(agent: Agent) -> bool:
    """Does it live, though a reason for its end is committed or it is not ours any more?"""
    return agent.verdict is None and (agent.kill_reason is not None or agent.disowned)


def signal_if_due(agent: Agent, mono: int) -> None:
    """TERM once its reason is committed, KILL after the grace, and again each second. `mono`: ms."""
    if not is_to_end(agent):
        return
    if not agent.term_sent:
        if agent.probe is not None and attempt_file.read(agent.probe).exit_code is not None:
            agent.kill_reason = None  # it ended by itself before the first signal: its own end stands
            return
        agent.term_sent = True
        agent.kill_after = mono + agent.grace_ms
        number = signal.SIGTERM
    elif agent.kill_after is not None and mono >= agent.kill_after:
        agent.kill_after = mono + KILL_AGAIN_MS
        number = signal.SIGKILL
    else:
        return
    agent.leader = agent.leader or host_agent.leader_of(agent.pid)
    host_agent.signal_tree(agent.leader, agent.token, number)
    processes.send_all(agent.outside, number)


def forget(agent: Agent, home: Home, spent: set[int]) -> None:
    """Drop its descriptor; its token goes to those whose files in the run folder are `spent`."""
    if agent.probe is not None:
        os.close(agent.probe)
    if agent.left_result:
        remove(job_file(home, agent.token, "result"))  # of any size
    spent.add(agent.token)


def clear_spent(home: Home, spent: set[int], mono: int, last_start: int) -> int | None:
    """Remove their files once nothing has started for a while; ms of the monotonic clock when to ask again.

    Whatever bears the token is one of them: to list the folder is cheaper than to try each possible name.

    An ext4 without a journal gives no inode out again for five seconds and walks over those at each file that
    is made: a millisecond a start, at hundreds a second. What a crash leaves, the next supervisor clears.
    """
    if not spent:
        return None
    if mono < last_start + SPENT_MS and len(spent) < MOST_SPENT:
        return last_start + SPENT_MS
    with suppress(OSError):  # somebody has tidied the folder away
        for name in os.listdir(home.run):
            if attempt_file.token_of(name) in spent:
                remove(os.path.join(home.run, name))
    spent.clear()
    return None


def remove(path: str) -> None:
    """A file of the run folder, or what an agent made in its place; a folder that holds something stays."""
    for way in (os.unlink, os.rmdir):
        try:
            way(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            pass
