"""What `clawq doctor` thinks of what it measured: ok, worth a look, or in need of a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clawq.rules.spans import short, size

OK, WARN, BAD = "ok", "warn", "bad"

_FIXED = ((3, 44, 6), (3, 50, 7))
"""Older lines of SQLite that have the fix of 3.51.3: two processes that checkpoint a WAL could corrupt it."""
NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb",
        "smb3",
        "smbfs",
        "afpfs",
        "webdav",
        "davfs",
        "9p",
        "ceph",
        "glusterfs",
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.glusterfs",
        "fuse.vmhgfs-fuse",
        "macfuse",
        "osxfuse",
        "lustre",
        "afs",
        "ncpfs",
        "vboxsf",
    )
)
"""Filesystems whose locks or shared memory SQLite's WAL cannot rely on."""
LARGE_WAL_MB = 64
FUTURE_MS = 60_000
JUMP_MS = 120_000
DESCRIPTORS_EACH = 4
DESCRIPTORS_OWN = 40


class Check(NamedTuple):
    """``name``: which one; ``text``: what was found; ``fix``: what to do, where there is something."""

    name: str
    verdict: str
    text: str
    fix: str = ""


class Program(NamedTuple):
    """The program of a kind. ``found`` None: it cannot be told; ``certain``: no caller's PATH comes first."""

    kind: str
    program: str
    found: bool | None
    certain: bool


class Folder(NamedTuple):
    """A folder or file of the queue. ``mode``: the permissions that count; ``mine``: this account owns it."""

    path: str
    is_folder: bool
    mode: int
    mine: bool


def supervisor(
    pid: int | None, ticking: bool, silent_s: float, up_s: float, version: str, own: str, waiting: int
) -> Check:
    """Who runs the queue, and as which version."""
    name = "supervisor"
    if pid is None:
        if waiting:
            what = f"none runs, and {'1 job waits' if waiting == 1 else f'{waiting} jobs wait'}"
            return Check(name, BAD, what, "start one with `clawq run`, or `clawq service install`")
        return Check(name, WARN, "none runs, and nothing waits", "start one with `clawq run`")
    if not ticking:
        what = f"pid {pid} holds the lock and has been silent for {short(silent_s)}"
        return Check(name, BAD, what, f"end it with `kill -9 {pid}` and start another, its agents live on")
    what = f"running, pid {pid}, up {short(up_s)}, version {version}"
    if version != own:
        return Check(name, WARN, f"{what}; this is {own}", "`clawq stop` hands over, then start it again")
    return Check(name, OK, what)


def service(
    file: str | None, installed: bool, differs: bool | None, problem: str | None, ticking: bool
) -> Check:
    """Whether something starts the supervisor again, by its file: to ask its manager takes a process."""
    if problem is not None:
        return Check("service", WARN, problem, "`clawq service status`")
    if not installed:
        fix = "`clawq service install` has it started again after a crash and a reboot"
        return Check("service", WARN, "not installed", fix)
    if differs:
        what = f"{file} is not what `clawq service install` would write"
        return Check("service", WARN, what, "`clawq service install` brings it up to date")
    return Check(
        "service", OK, f"installed, {file}" + ("" if ticking else "; `clawq service status` asks it")
    )


def config(path: str, exists: bool, broken: str | None) -> Check:
    if broken:
        return Check("config", BAD, broken, "`clawq config check` shows all of it")
    return Check("config", OK, path if exists else "no clawq.toml: the defaults are in force")


def sqlite(version: str, extension: str) -> Check:
    """Whether this build can be trusted with two processes on one WAL."""
    parts = tuple(int(part) for part in version.split(".")[:3])
    good = parts >= (3, 51, 3) or any(parts[:2] == fixed[:2] and parts >= fixed for fixed in _FIXED)
    text = f"{version} (apsw {extension})"
    if good:
        return Check("sqlite", OK, text)
    return Check("sqlite", BAD, f"{text} can corrupt the database", "pip install -U apsw")


def folders(found: Sequence[Folder]) -> Check:
    """0700 and 0600, and our own: payloads and environments lie there."""
    open_ones = [each for each in found if each.mode & 0o077]
    strange = [each for each in found if not each.mine]
    if strange:
        return Check(
            "rights", BAD, f"{strange[0].path} belongs to somebody else", "`chown` it to your account"
        )
    if open_ones:
        first = open_ones[0]
        more = f", and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
        mode = "700" if first.is_folder else "600"
        what = f"others may look into {first.path} (mode {first.mode:o}){more}"
        return Check("rights", WARN, what, f"chmod {mode} {first.path}")
    return Check("rights", OK, "folders 0700, files 0600" if found else "nothing is there yet")


def filesystem(kind: str | None, folder: str) -> Check:
    """`kind` as the system calls it."""
    if kind is None:
        return Check("filesystem", OK, "not told by the system")
    if kind.lower() in NETWORK:
        what = f"{folder} lies on {kind}, where locks and the database's shared memory cannot be relied on"
        return Check("filesystem", BAD, what, "set CLAWQ_HOME to a folder on a local disk")
    return Check("filesystem", OK, f"{kind}, local")


def disk(free_mb: int | None, floor: int | None) -> Check:
    """In MiB; a `floor` of None is a gate that is off."""
    if free_mb is None:
        return Check("disk", OK, "its free space cannot be told")
    text = f"{size(free_mb)} free"
    if floor is not None and free_mb < floor:
        fix = "free some: `clawq prune` removes ended jobs with their logs"
        return Check("disk", BAD, f"{text}, and nothing starts below {size(floor)}", fix)
    if floor is not None and free_mb < 2 * floor:
        return Check("disk", WARN, f"{text}; nothing starts below {size(floor)}", "`clawq prune` frees some")
    return Check("disk", OK, text)


def wal(size_mb: float, database_mb: float) -> Check:
    text = f"{size_mb:.0f} MB, database {database_mb:.0f} MB"
    if size_mb > LARGE_WAL_MB:
        return Check("wal", WARN, text, "close what reads the database for long; a supervisor folds it back")
    return Check("wal", OK, text)


def programs(found: Sequence[Program], whose: str) -> list[Check]:
    """The commands of all kinds, as the service will look for them."""
    missing = [each for each in found if each.found is False]
    if not missing:
        known = sum(bool(each.found) for each in found)
        text = f"{known} of {len(found)} programs of kinds found" if found else "no kind names a program"
        return [Check("path", OK, f"{text}; looked for on {whose}")]
    checks = []
    for each in missing:
        fix = "give its full path, or set PATH in [env]: see `clawq doctor --probe`"
        what = f"kind {each.kind}: no executable {each.program!r} on {whose}"
        checks.append(Check("path", BAD if each.certain else WARN, what, fix))
    return checks


def ceiling(asked: int | str | None, gate: int | None, most: int | None, in_use: int | None) -> Check:
    """The process gate against what the account may really have."""
    used = "" if in_use is None else f", {in_use} in use"
    if asked == "off":
        return Check("processes", WARN, "host.max_user_procs is off", "a full account then fails the starts")
    if isinstance(asked, int) and most is not None and asked >= most:
        what = f"host.max_user_procs = {asked}, and the account ends at {most}"
        return Check("processes", BAD, what, f"set it below {most * 3 // 4}, or leave it out")
    if isinstance(asked, int):
        end = "" if most is None else f" of {most}"
        return Check("processes", OK, f"gate at {asked}{end}{used}")
    if gate is None:
        return Check("processes", OK, f"no ceiling{used}")
    return Check("processes", OK, f"gate at {gate} of {most}{used}")


def room(max_running: int, footprints: Mapping[str, float], gate: int | None, in_use: int | None) -> Check:
    """Whether max_running of the largest kind fit below the process gate."""
    if not footprints:
        return Check("room", OK, f"max_running {max_running}, no kind measured yet")
    kind, procs = max(footprints.items(), key=lambda item: item[1])
    need = int(max_running * procs)
    text = f"{max_running} of {kind} at once are {need} processes"
    if gate is None:
        return Check("room", OK, text)
    free = gate - min(gate, in_use or 0)
    if need > gate:
        return Check(
            "room", WARN, f"{text}, and the gate is at {gate}", "the gate decides; lower max_running"
        )
    return Check("room", OK, f"{text}, {free} are free")


def descriptors(limit: int | None, max_running: int) -> Check:
    """Whether the supervisor may open as many files as its agents take."""
    need = max_running * DESCRIPTORS_EACH + DESCRIPTORS_OWN
    if limit is None or limit >= need:
        return Check("descriptors", OK, "no limit" if limit is None else f"{limit} for about {need}")
    what = f"the supervisor may open {limit} files, and {max_running} agents take about {need}"
    return Check("descriptors", WARN, what, "raise `ulimit -n`, or lower limits.max_running")


def orphans(pids: Sequence[int] | None) -> Check:
    if pids is None:
        return Check("orphans", OK, "not told by this system")
    if not pids:
        return Check("orphans", OK, "none")
    shown = " ".join(map(str, pids[:8])) + (" ..." if len(pids) > 8 else "")
    count = "1 process" if len(pids) == 1 else f"{len(pids)} processes"
    what = f"{count} of attempts that have ended: {shown}"
    return Check("orphans", WARN, what, f"look with `ps -fp {','.join(map(str, pids[:8]))}`, then end them")


def clock(ahead_ms: int, jump_ms: int | None) -> Check:
    """`ahead_ms`: how far the newest record lies in the future. `jump_ms`: wall against monotonic."""
    if ahead_ms > FUTURE_MS:
        what = f"the queue has records of {short(ahead_ms / 1000)} from now: the clock was set back"
        return Check("clock", WARN, what, "set it right; scheduled jobs keep their time")
    if jump_ms is not None and jump_ms > JUMP_MS:
        what = f"it was set {short(jump_ms / 1000)} ahead since the supervisor started"
        return Check("clock", WARN, what, "what was due by it has started; look at `clawq list`")
    return Check("clock", OK, "no record lies in the future")


def crontab(twice: Sequence[str], scheduled: int, problem: str | None) -> Check:
    """Kinds that both [[schedules]] and the crontab enqueue."""
    if twice:
        what = f"in [[schedules]] and in the crontab: {', '.join(twice)}"
        return Check("crontab", WARN, what, "leave one out, or give both the same --dedupe-key")
    if not scheduled:
        return Check("crontab", OK, "no [[schedules]]")
    return Check(
        "crontab", OK, f"not checked: {problem}" if problem else "no kind is both in it and in [[schedules]]"
    )
