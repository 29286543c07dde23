"""Deaths at every COMMIT: ``python -m tests.commits supervisor|families|commands before|after``.

Each point is a process of its own, forked from this one so that a hundred of them cost a second or two, that
ends by kill -9 just before or just after its n-th COMMIT; then the same is done again by one that lives, and
the queue is looked at. It prints how many points there were.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from clawq import cli as clawq_cli
from clawq import config as clawq_config
from clawq import states as job
from clawq.__main__ import main as clawq
from clawq.host import instance, wait_file
from clawq.paths import Home, find_home
from clawq.store import effects
from clawq.store.connection import open_db
from clawq.supervisor import loop, voice
from tests.crashing import die_at_commit
from tests.moves import put_in
from tests.rows import check_books, put, states
from tests.sizes import FULL

MOST = 60
"""More COMMITs than any of this makes: one that never ends is not waited for."""


def apart(run: Callable[[], int]) -> int | None:
    """The exit code of `run` in a process of its own; None when it died by kill -9."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 99
        try:
            code = run()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    return (
        None if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL else os.WEXITSTATUS(status)
    )


def say_nothing() -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)


def fresh_home(config: str = "") -> Home:
    """An empty queue of this point's own, known by CLAWQ_HOME."""
    folder = tempfile.mkdtemp(dir=os.environ["POINTS"])
    os.environ["CLAWQ_HOME"] = folder
    Path(folder, "clawq.toml").write_text(config)
    home = find_home()
    open_db(home).close()
    return home


def check(home: Home) -> apsw.Connection:
    """What holds at any moment at which nothing is being written; the open database."""
    db = open_db(home)
    check_books(db)
    (under_way,) = db.execute("SELECT count(*) FROM attempts WHERE ended_at IS NULL")
    (active,) = db.execute("SELECT count(*) FROM jobs WHERE token IS NOT NULL")
    assert under_way == active, "an attempt without its job, or the other way round"
    twice = db.execute(
        "SELECT job_id FROM attempts WHERE outcome = 'succeeded' GROUP BY job_id HAVING count(*) > 1"
    ).fetchall()
    assert twice == [], "accepted twice"
    return db


# ---------------------------------------------------------------- the supervisor

CONFIG = """
[kinds.works]
[kinds.fails]
max_attempts = 1
[kinds.mails]
reconcile = ["sh", "-c", "exit 0"]
"""
WANTED = {
    "works": job.SUCCEEDED,
    "fails": job.DEAD,
    "mails": job.SUCCEEDED,
    "stops": job.CANCELLED,
    "later": job.SUCCEEDED,
}


def a_days_work(home: Home) -> None:
    """One job that works, one that fails, one that leaves an effect open, one that has itself cancelled, and
    one that is not due yet. Each says how often it ran."""
    me = f"{sys.executable} -m clawq"
    scripts = {
        "works": "true",
        "fails": "exit 1",
        "mails": f"{me} effect begin mail",
        "stops": f"{me} cancel $CLAWQ_JOB_ID >&2; exec sleep 60",
        "later": "true",
    }
    now = loop.wall_ms()
    db = open_db(home)
    for name, script in scripts.items():
        kind = name if name in ("fails", "mails") else "works"
        due = {"state": "scheduled", "run_after": now + 200} if name == "later" else {}
        command = ["sh", "-c", f"echo run >> {home.data}/{name}; {script}"]
        put(db, now, kind=kind, command=command, cwd=home.data, dedupe_key=name, **due)
    db.close()


def supervise(prepare: Callable[[], None] = lambda: None) -> int:
    prepare()
    home = find_home()
    held = instance.acquire(home.lock)
    assert held is not None
    say_nothing()
    supervisor = loop.Supervisor(home, held, voice.say_on_stderr, until_idle=True)
    supervisor.state.ramp_since = None  # a ramp after each crash would take seconds
    return supervisor.run()


def supervisor_points(before: bool) -> int:
    for number in range(1, MOST):
        home = fresh_home(CONFIG)
        a_days_work(home)
        lived = apart(lambda n=number: supervise(lambda: die_at_commit(n, before)))  # type: ignore[misc]
        if lived is None:
            check(home).close()
            assert apart(supervise) == 0
        db = check(home)
        states = dict(db.execute("SELECT dedupe_key, state FROM jobs").fetchall())
        assert states == WANTED, (number, states)
        runs = {name: Path(home.data, name).read_text() for name in WANTED}
        assert runs == dict.fromkeys(WANTED, "run\n"), (number, runs)
        assert db.execute("SELECT state FROM effects").fetchall() == [("done",)]
        db.close()
        assert os.listdir(home.run) == ["null.payload"], (number, os.listdir(home.run))
        shutil.rmtree(home.data)
        if lived == 0:
            return number - 1
    raise AssertionError("it never ended")


# ---------------------------------------------------------------- the supervisor of those who wait

NARROW = """
[limits]
max_running = 1
[resources.lamp]
limit = 1
"""
USE = "mkdir lamp || echo $1 >> twice; echo run >> $1; rmdir lamp"
PARENT = f"""
use() {{ {USE}; }}
use parent
clawq enqueue --hold --on-parent-end cancel -- true
clawq ask 'Shall I?' --timeout 0s
child=$(clawq enqueue --print-id --needs lamp -- sh -c '{USE}' - child)
until clawq wait $child; do echo died >> waits; done
use again
"""
FAMILY = [job.SUCCEEDED, job.CANCELLED, job.CANCELLED, job.SUCCEEDED]
"""The parent, what was to end with it, its question, and whom it waited for."""


def kill_waits(home: Home) -> int:
    """How many `clawq wait` there were to be killed."""
    paths = [str(path) for path in Path(home.run).glob("*.wait")]
    pids = [wait_file.holder(path) for path in paths if wait_file.is_held(path)]
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    return len(pids)


def family_points(before: bool) -> int:
    """In short every other COMMIT; and whether the parent's `clawq wait` dies too, which then waits anew."""
    killed = 0
    for number in range(1 if before or FULL else 2, MOST, 1 if FULL else 2):
        for wait_too in (False, True) if FULL else (not before,):
            home = fresh_home(NARROW)
            db = open_db(home)
            put(db, loop.wall_ms(), command=["sh", "-c", PARENT], cwd=home.data, needs="lamp")
            db.close()
            lived = apart(lambda n=number: supervise(lambda: die_at_commit(n, before)))  # type: ignore[misc]
            if lived is None:
                check(home).close()
                killed += kill_waits(home) if wait_too else 0
                assert apart(supervise) == 0
            check_family(home, number)
            if lived == 0:
                assert killed or not wait_too, "no wait was there to be killed"
                return number - 1
    raise AssertionError("it never ended")


def check_family(home: Home, number: int) -> None:
    db = check(home)
    assert list(states(db).values()) == FAMILY, (number, states(db))
    assert db.execute("SELECT count(*) FROM attempts WHERE outcome <> 'never_started'").get == 2
    assert db.execute("SELECT count(*) FROM attempts WHERE waited_ms > 0").get == 1
    db.close()
    runs = {name: Path(home.data, name).read_text() for name in ("parent", "child", "again")}
    assert runs == dict.fromkeys(runs, "run\n"), (number, runs)
    assert not Path(home.data, "twice").exists(), "two held the lamp"
    assert os.listdir(home.run) == ["null.payload"], (number, os.listdir(home.run))
    shutil.rmtree(home.data)


# ---------------------------------------------------------------- commands

ME = 1_001
"""The token that put_in gives job 1."""


def begun(db: apsw.Connection) -> None:
    effects.begin(db, "default", 1, ME, "mail", "job", loop.wall_ms())


class Case(NamedTuple):
    """What is said of job 1, in which state, with what besides; `inside`: by its own agent."""

    command: str
    state: str
    more: Callable[[apsw.Connection], object] = lambda db: None
    inside: bool = False

    def prepare(self) -> Home:
        home = fresh_home(TOKENS)
        db = open_db(home)
        put_in(db, self.state, loop.wall_ms() - 60_000)
        self.more(db)
        db.close()
        for name, value in {"CLAWQ_JOB_ID": "1", "CLAWQ_TOKEN": str(ME)}.items():
            os.environ.pop(name, None)
            if self.inside:
                os.environ[name] = value
        return home


def paused(db: apsw.Connection) -> None:
    db.execute("INSERT INTO pauses VALUES ('all', '', 1)")


CASES = (
    Case("enqueue --dedupe-key k -- true", job.QUEUED),
    Case("cancel 1", job.QUEUED),
    Case("cancel 1", job.RUNNING),
    Case("retry 1", job.DEAD),
    Case("edit 1 --priority 5", job.QUEUED),
    Case("edit 1 --delay 1h", job.QUEUED),
    Case("approve 1", job.HELD),
    Case("deny 1", job.HELD),
    Case("pause", job.QUEUED),
    Case("pause --kind default", job.QUEUED),
    Case("resume", job.QUEUED, paused),
    Case("prune --older-than 1s", job.SUCCEEDED),
    Case("reconcile 1 --succeeded", job.UNKNOWN, begun),
    Case("reconcile 1 --failed", job.UNKNOWN, begun),
    Case("reconcile 1 --requeue", job.UNKNOWN, begun),
    Case("throttle browser --for 1h", job.QUEUED),
    Case("effect begin mail", job.RUNNING, inside=True),
    Case("effect done mail", job.RUNNING, begun, inside=True),
    Case("effect fail mail", job.RUNNING, begun, inside=True),
    Case("fail --class permanent", job.RUNNING, inside=True),
    Case("spend tokens 5", job.RUNNING, inside=True),
)
TOKENS = '[budgets.tokens]\nlimit = 100\nper = "1h"\n'


def everything(home: Home) -> dict[str, Any]:
    """All rows but those in which only moments differ."""
    db = check(home)
    rows = {
        "jobs": "id, state, reason, priority, attempts, tries, token, cancel_at IS NULL, last_error,"
        " run_after > created_at",
        "attempts": "token, outcome, told",
        "effects": "key, state, token",
        "events": "job_id, from_state, to_state, reason",
        "dedupe": "kind, key, job_id",
        "pauses": "scope, name",
        "cooldowns": "resource, until > set_at",
    }
    found = {
        table: db.execute(f"SELECT {columns} FROM {table}").fetchall() for table, columns in rows.items()
    }
    found["spends"] = db.execute("SELECT budget, token, sum(amount), max(told) FROM spends").fetchall()
    db.close()
    return found


def say(command: str, dying_at: int = 0, before: bool = False) -> int:
    if dying_at:
        die_at_commit(dying_at, before)
    say_nothing()
    return clawq(command.split())


def command_points(before: bool) -> int:
    points = 0
    for case in CASES:
        home = case.prepare()
        untouched = everything(home)
        assert apart(lambda c=case: say(c.command)) == 0, case  # type: ignore[misc]
        wanted = everything(home)
        assert wanted != untouched, case
        for number in range(1, MOST):
            home = case.prepare()
            if apart(lambda c=case, n=number: say(c.command, n, before)) is not None:  # type: ignore[misc]
                break
            points += 1
            found = everything(home)
            assert found in (untouched, wanted), (case, found)
            apart(lambda c=case: say(c.command))  # type: ignore[misc]
            assert everything(home) == wanted, case
        assert 1 < number < MOST, case
    return points


POINTS = {"supervisor": supervisor_points, "families": family_points, "commands": command_points}


def _load_once() -> None:
    """What every child would import for itself."""
    apart_from = {"clawq.cli.__main__", "clawq.config.__main__"}
    for package in (clawq_cli, clawq_config):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if module.name not in apart_from:
                importlib.import_module(module.name)


def main(what: str, when: str) -> int:
    _load_once()
    # A process that dies loses nothing that it wrote, so memory will do, and no point waits for a disk.
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
    os.environ["POINTS"] = tempfile.mkdtemp(prefix="cq-", dir=folder)
    try:
        points = POINTS[what](when == "before")
    finally:
        shutil.rmtree(os.environ["POINTS"], ignore_errors=True)
    print(points)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
