"""What each agent's whole process tree uses, by one walk over the machine for all agents together.

A process enters a session only by being forked into it, or by leaving for one of its own. So a session
belongs to an agent as a whole, once its leader does. The walk asks each process only for its session, which
reads no file; it reads a parent once for each session that is not an agent's own, and the rest only of what
it measures.

For the same reason a descendant that was seen once outside its agent's session tells of all that session
later on, when those between the two have gone: that is what ``outside`` is remembered for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from clawq.host import platform, processes
from clawq.host.processes import Process

_MB = 1 << 20
MOST_OUTSIDE = 1_000
"""Remembered of one agent. More than a Mac lets an account start is no use."""


class Usage(NamedTuple):
    """A tree at one moment.

    ``procs`` counts zombies too, as the account's ceiling does (Linux). ``mb``: private memory, MiB.
    ``cpu_ms``: used since their starts, with that of ended children they waited for (Linux); what an orphan
    used is lost when it ends, so the sum may fall: a quiet tree is one in which it does not change.
    ``outside``: those of it that are in another session than its leader's, at most MOST_OUTSIDE.
    """

    procs: int
    mb: int
    cpu_ms: int
    outside: tuple[Process, ...] = ()


def measure(
    leaders: Mapping[int, int], known: Mapping[int, Iterable[Process]] | None = None
) -> dict[int, Usage]:
    """{token: Usage} for {token: pid of the shell that leads the attempt's session}.

    A tree is the session and all descendants, also those that called setsid while their parent lives or that
    are ``known`` from an earlier look; on Linux also orphans with a session of their own that came to us as
    subreaper and carry the token. A token of which nothing runs is left out. macOS does not tell the session
    of a zombie: those are missed there.

    Linux counts as private what is resident less what is shared (files, shared memory, tmpfs): anonymous
    memory, cheap to read. Too much where a fork has not yet written to what it shares with its parent; too
    little for shared memory (a browser's pictures), file pages of one program only, and what is swapped out.
    A headless Chromium of nine processes, against its PSS (smaps_rollup, 600 times as dear to read): 0.58 on
    a blank page, 0.72 on one that holds 250 MiB; against PSS without files, which the kernel can drop and a
    second browser shares, 1.46 and 1.14. The sum of resident sizes is 2.4 and 1.9 times PSS.
    """
    if not leaders:
        return {}
    found = {}
    sessions = _sessions()
    theirs = sessions_of(known or {}, sessions)
    for token, pids in trees(leaders, sessions, platform.parent_of, _token_of_orphan, theirs).items():
        usage = _total(pids)
        if usage.procs:
            away = [pid for pid in pids if sessions[pid] != leaders[token]]
            found[token] = usage._replace(outside=tuple(_identified(away, sessions)[:MOST_OUTSIDE]))
    return found


def kin_of(seen: Iterable[Process]) -> list[Process]:
    """These, whoever else is in their sessions, and what came of those: whatever of it runs now.

    ``seen`` are descendants of one agent that were identified as such, in whatever sessions.
    """
    sessions = _sessions()
    pids = trees({}, sessions, platform.parent_of, known=sessions_of({0: seen}, sessions)).get(0, [])
    return _identified(pids, sessions)


def sessions_of(known: Mapping[int, Iterable[Process]], sessions: Mapping[int, int]) -> dict[int, int]:
    """{session: token} of those in {token: processes} that run and are still the same."""
    found = {}
    for token, members in known.items():
        for process in members:
            session = sessions.get(process.pid)
            if session is not None and session not in found and processes.is_alive(process):
                found[session] = token
    return found


def _identified(pids: Iterable[int], sessions: Mapping[int, int]) -> list[Process]:
    """These with their start times, without those whose pid went to somebody else since the walk."""
    found = []
    for pid in pids:
        process = processes.identify(pid)
        try:
            if process is not None and os.getsid(pid) == sessions[pid]:
                found.append(process)
        except OSError:
            continue
    return found


def trees(
    leaders: Mapping[int, int],
    sessions: Mapping[int, int],
    parent_of: Callable[[int], int | None],
    token_of_orphan: Callable[[int, int], int | None] = lambda pid, parent: None,
    known: Mapping[int, int] | None = None,
) -> dict[int, list[int]]:
    """{token: pids}, from {pid: session} of everything that runs.

    ``token_of_orphan(pid, parent)`` is asked of processes outside any agent's session. ``known`` is {session:
    token} of what an earlier look has seen.
    """
    members: dict[int, list[int]] = {}
    for pid, session in sessions.items():
        members.setdefault(session, []).append(pid)
    owners = (dict(known) if known else {}) | {leader: token for token, leader in leaders.items()}
    below: dict[int, list[int]] = {}
    for session in [each for each in members if each not in owners]:
        # The session's leader speaks for all. Without it, a member's parent may adopt a tree's orphans.
        for pid in sorted(members[session], key=lambda pid: pid != session):
            parent = parent_of(pid)
            if parent is None:
                continue
            token = token_of_orphan(pid, parent)
            if token is not None and token in leaders:
                owners[session] = token
            elif sessions.get(parent, session) != session:
                below.setdefault(sessions[parent], []).append(session)
            if pid == session:
                break
    ahead = list(owners)
    while ahead:
        above = ahead.pop()
        for session in below.get(above, ()):
            if session not in owners:
                owners[session] = owners[above]
                ahead.append(session)
    found: dict[int, list[int]] = {}
    for session, token in owners.items():
        found.setdefault(token, []).extend(members.get(session, ()))
    return found


def _sessions() -> dict[int, int]:
    """{pid: session} of all processes but the kernel's own threads, whose session is 0."""
    found = {}
    for pid in platform.all_pids():
        try:
            session = os.getsid(pid)
        except OSError:
            continue
        if session:
            found[pid] = session
    return found


def _token_of_orphan(pid: int, parent: int) -> int | None:
    if parent != os.getpid():
        return None
    carried = platform.environment_of(pid, "CLAWQ_TOKEN")
    return int(carried) if carried is not None and carried.isdecimal() else None


def _total(pids: Iterable[int]) -> Usage:
    procs = private = cpu_ms = 0
    for used in map(platform.usage_of, pids):
        if used is not None:
            procs += 1
            private += used[0]
            cpu_ms += used[1]
    return Usage(procs, (private + _MB // 2) // _MB, cpu_ms)
