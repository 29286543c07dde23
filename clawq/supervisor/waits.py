"""Jobs in `clawq wait`: is anybody still there, and who is told when nobody is?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from clawq.host import platform, wait_file
from clawq.paths import Home
from clawq.supervisor.agents import Agent
from clawq.supervisor.wake import Wakeups


def deserted(agents: Iterable[Agent], home: Home, wakeups: Wakeups) -> list[Agent]:
    """Those that wait although nobody is in their `clawq wait` any more.

    Whoever took the lock last is watched, so that its death wakes the loop; then the lock is asked once more.
    """
    found = []
    for agent in agents:
        if not agent.waiting or agent.verdict is not None:
            continue
        path = wait_file.path_of(home.run, agent.token)
        if agent.waiter is None or wakeups.has_fired(-agent.token):
            _watch(agent, path, wakeups)
        if not wait_file.is_held(path):
            found.append(agent)
    return found


def _watch(agent: Agent, path: str, wakeups: Wakeups) -> None:
    wakeups.unwatch(-agent.token)
    pid = wait_file.holder(path)
    if pid is None or pid == agent.waiter:
        return  # dead already, and others hold the lock: the loop looks each second
    watch = platform.exit_watch(pid)
    if watch is not None:
        wakeups.watch(-agent.token, watch)
        agent.waiter = pid


def remember(
    agents: Mapping[int, Agent], waiting: set[int], resumed: Mapping[int, int], wakeups: Wakeups, mono: int
) -> None:
    """After the commit: who waits, and whose clocks go on. ``resumed``: ms waited in all, by token."""
    for token, waited_ms in resumed.items():
        agent = agents.get(token)
        if agent is not None:
            agent.started += waited_ms - agent.waited_ms
            agent.waited_ms = waited_ms
            agent.last_sign = mono
    for token, agent in agents.items():
        agent.waiting = token in waiting
        if not agent.waiting and agent.waiter is not None:
            wakeups.unwatch(-token)
            agent.waiter = None
