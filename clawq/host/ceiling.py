"""How many processes this account may have, and how near it is.

Several limits meet. macOS counts processes by real UID. Linux counts threads: RLIMIT_NPROC those of the real
UID, a cgroup's pids.max those inside it and below (so the lowest of all its ancestors holds), pid_max and
threads-max those of the whole machine, which bounds every account.
"""

from __future__ import annotations

from clawq.host import platform
from clawq.host.mounts import mounts
from clawq.named import NamedTuple

SHARE_OF_CEILING = 0.75
"""The default limit: the rest is left to what else the account does, and to what agents start unannounced."""


class Tasks(NamedTuple):
    """Threads in use, and the default limit for them."""

    in_use: int
    limit: int


def process_ceiling() -> int | None:
    """The lowest of the limits; None where there is none."""
    limits = [_rlimit(), platform.max_procs_per_uid()]
    if platform.LINUX:
        limits += [_machine_limit(), *(_int_in(f"{folder}/pids.max") for folder in _cgroup_folders())]
    return min((limit for limit in limits if limit is not None), default=None)


def nearest(account_tasks: int | None) -> Tasks | None:
    """Of the limits that count threads the one that leaves the least room below its share.

    `account_tasks`: the threads of this real UID. None on macOS, which counts processes.
    """
    if not platform.LINUX:
        return None
    found = [(account_tasks, _rlimit()), (_machine_tasks(), _machine_limit())]
    found += [
        (_int_in(f"{folder}/pids.current"), _int_in(f"{folder}/pids.max")) for folder in _cgroup_folders()
    ]
    known = [Tasks(used, share_of(limit)) for used, limit in found if used is not None and limit is not None]
    return min(known, key=lambda each: each.limit - each.in_use, default=None)


def share_of(limit: int) -> int:
    return max(1, int(limit * SHARE_OF_CEILING))


def _rlimit() -> int | None:
    """The soft RLIMIT_NPROC. Linux does not hold root to it, but whoever lowered it meant it."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY or soft < 0 else soft


def _machine_limit() -> int | None:
    found = [_int_in("/proc/sys/kernel/pid_max"), _int_in("/proc/sys/kernel/threads-max")]
    return min((limit for limit in found if limit is not None), default=None)


def _machine_tasks() -> int | None:
    return tasks_in_loadavg(_text("/proc/loadavg"))


def tasks_in_loadavg(text: str) -> int | None:
    """All threads of the machine: the second figure of ``running/all`` in /proc/loadavg."""
    words = text.split()
    total = words[3].partition("/")[2] if len(words) > 3 else ""
    return int(total) if total.isdecimal() else None


def _cgroup_folders() -> list[str]:
    return pids_folders(_text("/proc/self/cgroup"), _text("/proc/self/mountinfo"))


def pids_folders(cgroup: str, mountinfo: str) -> list[str]:
    """The folders in which a pids.max may bound a process: its cgroup's and all above, in every hierarchy.

    `cgroup` and `mountinfo` are the texts of the files of these names in /proc/self. Version 2 is the
    hierarchy 0, of version 1 only the one with the pids controller counts.
    """
    groups: dict[str, str] = {}
    for line in cgroup.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            groups["cgroup2"] = path
        elif "pids" in controllers.split(","):
            groups["cgroup"] = path
    folders = []
    for root, mount, kind, options in mounts(mountinfo):
        if kind in groups and (kind == "cgroup2" or "pids" in options.split(",")):
            folders += _with_ancestors(mount, root, groups[kind])
    return list(dict.fromkeys(folders))


def _with_ancestors(mount: str, root: str, group: str) -> list[str]:
    """From the group's folder up to the mount. `root` is what the mount shows of the hierarchy.

    A group outside of it (a container that bind mounts its own, a parent of the namespace) cannot be seen:
    then the mount itself is what there is.
    """
    prefix = root.rstrip("/")
    inside = group[len(prefix) :] if (group + "/").startswith(prefix + "/") else ""
    names = [name for name in inside.split("/") if name]
    if ".." in names:
        names = []
    return ["/".join([mount.rstrip("/"), *names[:depth]]) for depth in range(len(names), -1, -1)]


def _int_in(path: str) -> int | None:
    """The number in a file; None without one, as in ``max``."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (OSError, ValueError):
        return ""
