"""An upgrade while everything runs: two copies of the package, the second with a newer schema."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import clawq
from clawq.paths import Home
from clawq.store.connection import SCHEMA_VERSION
from tests.fleet import Fleet
from tests.waiting import until

PACKAGE = Path(clawq.__file__).parent
NEXT = SCHEMA_VERSION + 1
STEP = "CREATE TABLE second (x TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;"


class Install:
    """A copy of clawq in a folder of its own, as pip would put it there."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder, self.home = folder, home
        shutil.copytree(PACKAGE, folder / "clawq", ignore=shutil.ignore_patterns("__pycache__"))

    def upgrade(self) -> Install:
        """Put the next version over it."""
        store = self.folder / "clawq" / "store"
        (store / "migrations" / f"{NEXT}.sql").write_text(STEP)
        self.edit("connection.py", f"SCHEMA_VERSION = {SCHEMA_VERSION}", f"SCHEMA_VERSION = {NEXT}")
        return self

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / "clawq" / "store" / name
        text = path.read_text()
        assert old in text
        draft = path.with_suffix(".draft")
        draft.write_text(text.replace(old, new))
        draft.rename(path)

    @property
    def env(self) -> dict[str, str]:
        # Bytecode is told from older bytecode by the second: too coarse for an upgrade this quick.
        return os.environ | {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}

    def popen(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "clawq", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=self.env, cwd="/", stdout=pipe, stderr=pipe, text=True)

    def clawq(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, (words, process.returncode, out, err)
        return subprocess.CompletedProcess(words, code, out, err)

    def supervisor(self) -> subprocess.Popen[str]:
        process = self.popen("run")
        lock = Path(self.home.lock)
        until(lambda: lock.exists() and lock.read_text().startswith(f"{process.pid} "), 20)
        return process


@pytest.fixture
def old(home: Home, unreachable_home: Path) -> Install:
    return Install(unreachable_home / "old", home)


@pytest.fixture
def new(home: Home, unreachable_home: Path) -> Install:
    return Install(unreachable_home / "new", home).upgrade()


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def schema(home: Home) -> int:
    db = apsw.Connection(home.db, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(str(db.pragma("user_version")))
    finally:
        db.close()


def state(home: Home, job_id: int) -> str:
    db = apsw.Connection(home.db, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return str(db.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).get)
    finally:
        db.close()


def end(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=30)[1]


def test_the_supervisor_becomes_the_newer_program(home: Home, old: Install, fleet: Fleet) -> None:
    go = fleet.scratch / "go"
    wait = f"echo run >> {fleet.scratch}/runs; while [ ! -e {go} ]; do sleep 0.05; done; exit 0"
    old.clawq("enqueue", "--", "sh", "-c", wait)
    supervisor = old.supervisor()
    try:
        until(lambda: state(home, 1) == "running")
        old.upgrade()
        old.clawq("enqueue", "--", "true")
        assert schema(home) == NEXT
        backup = f"{home.db}.v{SCHEMA_VERSION}.bak"
        assert os.path.exists(backup)
        # The same process goes on as the newer program, with the agent that it had.
        until(lambda: fleet.holder() == supervisor.pid and state(home, 2) == "succeeded", 20)
        assert supervisor.poll() is None
        assert state(home, 1) == "running"
        go.touch()
        until(lambda: state(home, 1) == "succeeded")
        assert fleet.lines("runs") == ["run"]
    finally:
        said = end(supervisor)
    assert supervisor.returncode == 0
    assert "standing aside for a newer clawq" in said
    assert "1 agents taken over" in said


def test_one_that_is_still_the_older_program_stops_and_says_why(
    home: Home, old: Install, new: Install
) -> None:
    old.clawq("enqueue", "--", "true")
    old.clawq("pause")
    supervisor = old.supervisor()
    try:
        new.clawq("enqueue", "--", "true")
        _, said = supervisor.communicate(timeout=30)
    finally:
        supervisor.kill()
    assert supervisor.returncode == 74
    last = said.splitlines()[-1]
    assert last == (
        f"clawq: {home.db} has schema {NEXT}, this clawq knows up to {SCHEMA_VERSION}: upgrade clawq"
    )
    assert schema(home) == NEXT


def test_a_database_that_was_migrated_under_it_stops_it(home: Home, old: Install, fleet: Fleet) -> None:
    """By hand, or from another machine that shares the folder: nobody asked it."""
    go = fleet.scratch / "go"
    old.clawq("enqueue", "--", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done")
    supervisor = old.supervisor()
    try:
        until(lambda: state(home, 1) == "running")
        db = apsw.Connection(home.db)
        db.set_busy_timeout(10_000)
        db.pragma("user_version", NEXT)
        db.close()
        _, said = supervisor.communicate(timeout=30)
    finally:
        supervisor.kill()
        go.touch()
    assert supervisor.returncode == 74
    assert f"was brought to schema {NEXT}" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_one_that_does_not_answer_keeps_the_upgrade_waiting(home: Home, old: Install, new: Install) -> None:
    new.edit("migrate.py", "PATIENCE_S = 10.0", "PATIENCE_S = 0.3")
    old.clawq("enqueue", "--", "true")
    old.clawq("pause")
    supervisor = old.supervisor()
    # Idle: stopped inside a transaction, it would keep the database itself locked.
    first = os.stat(home.lock).st_mtime_ns
    until(lambda: os.stat(home.lock).st_mtime_ns > first + 1_500_000_000)
    supervisor.send_signal(signal.SIGSTOP)
    try:
        for words in (["enqueue", "--", "true"], ["status"]):
            done = new.clawq(*words, code=75)
            assert "does not stand aside" in done.stderr
            assert done.stderr.count("\n") == 1
        assert schema(home) == SCHEMA_VERSION
    finally:
        supervisor.send_signal(signal.SIGCONT)
        end(supervisor)


def test_ten_newer_programs_at_once_migrate_once(home: Home, old: Install, new: Install) -> None:
    old.clawq("enqueue", "--", "true")
    old.clawq("pause")
    supervisor = old.supervisor()
    try:
        started = [new.popen("enqueue", "--", "true") for _ in range(10)]
        for process in started:
            _, errors = process.communicate(timeout=60)
            assert (process.returncode, errors) == (0, "")
    finally:
        supervisor.kill()
        supervisor.communicate()
    assert schema(home) == NEXT
    kept = [name for name in os.listdir(home.data) if name.endswith(".bak") or ".new" in name]
    assert kept == [f"clawq.db.v{SCHEMA_VERSION}.bak"]


def test_the_older_program_is_refused_afterwards(home: Home, old: Install, new: Install) -> None:
    new.clawq("enqueue", "--", "true")
    for words in (["enqueue", "--", "true"], ["status"], ["run", "--until-idle"], ["backup", "/tmp/none.db"]):
        done = old.clawq(*words, code=74)
        assert "upgrade clawq" in done.stderr.splitlines()[-1]


def test_a_restore_migrates_an_older_backup(home: Home, old: Install, new: Install, fleet: Fleet) -> None:
    copy = str(fleet.scratch / "copy.db")
    old.clawq("enqueue", "--", "true")
    old.clawq("backup", copy)
    old.clawq("enqueue", "--", "true")
    new.clawq("restore", copy)  # over a database of the older schema, too
    assert schema(home) == NEXT
    assert (state(home, 1), state(home, 2)) == ("queued", "queued")
    refused = old.clawq("restore", f"{home.db}", code=2)
    assert "the queue itself" in refused.stderr
    newer = str(fleet.scratch / "newer.db")
    new.clawq("backup", newer)
    assert "upgrade clawq" in old.clawq("restore", newer, code=74).stderr


@pytest.mark.parametrize("moment", ["back_up(db, f", "take_steps(db, target"])
def test_killed_while_it_migrates(home: Home, old: Install, new: Install, moment: str) -> None:
    old.clawq("enqueue", "--", "true")
    killing = Install(new.folder.parent / "killing", home).upgrade()
    killing.edit("migrate.py", f"    {moment}", f"    os.kill(os.getpid(), 9)\n    {moment}")
    killing.clawq("enqueue", "--", "true", code=-9)
    assert schema(home) == SCHEMA_VERSION
    assert old.clawq("enqueue", "--", "true").returncode == 0
    new.clawq("enqueue", "--", "true")
    assert schema(home) == NEXT
    assert [name for name in os.listdir(home.data) if ".new" in name] == []
