"""Machines that are full, locked, damaged or wrong about the time: nothing is lost, nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from clawq.paths import Home, find_home
from clawq.store.connection import open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.rows import check_books
from tests.waiting import until

DAY_MS = 86_400_000


@pytest.fixture
def fleet(home: Home) -> Iterator[Fleet]:
    fleet = Fleet(home)
    yield fleet
    (fleet.scratch / "go").touch()


@pytest.fixture
def disk(home: Home) -> Iterator[Path]:
    """The home on a file system of 64 MB of its own."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")
    folder = Path(home.data)
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(folder)]
    mounted = subprocess.run(argv, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, megabytes: int | None = None) -> Path:
    """Take so much of the disk, or all of it; the file that does."""
    ballast = folder / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (1 << 20, 4_096, 1):
            try:
                while megabytes is None or file.tell() < megabytes << 20:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def waits_for(fleet: Fleet, name: str) -> str:
    """A script that counts its runs and ends once told to."""
    return f"echo run >> {fleet.scratch}/{name}; until [ -e {fleet.scratch}/go ]; do sleep 0.05; done"


def check_sound(fleet: Fleet) -> None:
    db = open_db(fleet.home)
    check_books(db)
    db.close()


@contextmanager
def strange(fleet: Fleet, busy_ms: int = 10_000, taken: int = 0) -> Iterator[Path]:
    """A supervisor that waits so long for a lock, and finds something in the place of that job's first log;
    the file that moves its wall clock."""
    clock = fleet.scratch / "clock"
    clock.write_text("0")
    argv = [sys.executable, "-m", "tests.strange", str(clock), str(busy_ms), str(taken)]
    with open(fleet.scratch / "said", "w") as said:
        process = subprocess.Popen(argv, cwd=ROOT, stderr=said, text=True)
    try:
        until(lambda: fleet.holder() == process.pid, 20, fleet.said)
        yield clock
        assert process.poll() is None, fleet.said()
    finally:
        fleet.end(process)


def move(clock: Path, ms: int) -> None:
    draft = clock.with_suffix(".new")
    draft.write_text(str(ms))
    draft.rename(clock)


# ---------------------------------------------------------------- the disk


def test_a_disk_that_fills_up_while_agents_run_loses_nothing(fleet: Fleet, disk: Path) -> None:
    """Disk full: at an enqueue, a claim, an end and a log."""
    fleet.configure('[limits]\nmax_running = 1\n[host]\nmin_free_disk_mb = "off"\n')
    with fleet.supervised():
        running = fleet.script(waits_for(fleet, "first") + "; echo said at the end; exit 0")
        fleet.until_state(running, "running")
        waiting = fleet.script(f"echo run >> {fleet.scratch}/second")
        ballast = fill(disk)
        refused = [fleet.clawq("enqueue", "--payload", '"%s"' % ("x" * 60_000), "--", "true", code=None)]
        while refused[-1].returncode == 0 and len(refused) < 20:
            refused.append(
                fleet.clawq("enqueue", "--payload", '"%s"' % ("x" * 60_000), "--", "true", code=None)
            )
        assert refused[-1].returncode == 74
        (fleet.scratch / "go").touch()
        until(lambda: "free some disk space" in fleet.said(), 20, fleet.said)
        ballast.unlink()
        for job_id in (running, waiting, *range(waiting + 1, waiting + len(refused))):
            fleet.until_state(job_id, "succeeded", seconds=30)
    assert (fleet.lines("first"), fleet.lines("second")) == (["run"], ["run"])
    assert "Traceback" not in fleet.said()
    check_sound(fleet)


def test_a_disk_that_is_nearly_full_defers_starts_and_says_so(fleet: Fleet, disk: Path) -> None:
    """Disk full, seen in time."""
    fleet.configure("[host]\nmin_free_disk_mb = 40\n")
    ballast = fill(disk, 40)
    with fleet.supervised():
        job_id = fleet.script("true")
        until(lambda: "low_disk" in fleet.clawq("why", job_id, "--json", code=None).stdout, 10)
        ballast.unlink()
        fleet.until_state(job_id, "succeeded")


@pytest.mark.parametrize(
    "writes",
    ["head -c 400000 /dev/zero; sleep 0.02", "head -c 100000000 /dev/zero 2>&-"],
    ids=["seen", "full"],
)
def test_the_one_that_fills_the_disk_is_ended(fleet: Fleet, disk: Path, writes: str) -> None:
    """107 GB in three minutes, on a disk that others need too."""
    fleet.configure(
        '[limits]\nlog_max_mb = 64\n[host]\nmin_free_disk_mb = 40\n[kinds.default]\ngrace = "1s"\n'
    )
    with fleet.supervised():
        quiet = fleet.script(waits_for(fleet, "quiet"))
        loud = fleet.script("--max-attempts", "1", f"while :; do {writes}; done")
        fleet.until_state(loud, "dead", seconds=30)
        assert fleet.state(quiet) == "running"
        (fleet.scratch / "go").touch()
        fleet.until_state(quiet, "succeeded")
    (attempt,) = fleet.json("show", loud)["attempts"]
    assert attempt["outcome"] == "over_footprint"
    assert "MB/s while the disk was nearly full" in fleet.job(loud)["last_error"]


def test_a_log_that_cannot_be_written_costs_nothing_and_takes_nobody_down(fleet: Fleet) -> None:
    """One unwritable log that took the whole daemon down."""
    fleet.configure('[host]\nretry_after = "1s"\n')
    logs = Path(fleet.home.logs)
    with fleet.supervised() as supervisor:
        running = fleet.script(waits_for(fleet, "first"))
        fleet.until_state(running, "running")
        logs.rename(logs.with_suffix(".away"))
        logs.write_text("no folder")
        job_id = fleet.script(f"echo run >> {fleet.scratch}/second")
        until(lambda: "was not started" in fleet.said(), 10, fleet.said)
        assert (supervisor.poll(), fleet.job(job_id)["attempts"]) == (None, 0)
        (fleet.scratch / "go").touch()
        fleet.until_state(running, "succeeded")
        logs.unlink()
        fleet.until_state(job_id, "succeeded", seconds=30)
    assert (fleet.lines("first"), fleet.lines("second")) == (["run"], ["run"])
    assert fleet.job(job_id)["attempts"] == 1


def test_one_log_that_cannot_be_written_is_its_own_jobs_fault(fleet: Fleet) -> None:
    """One unwritable log that took the whole daemon down."""
    fleet.configure("[limits]\nmax_running = 1\n")
    broken, beside = fleet.script("true"), fleet.script("true")
    with strange(fleet, taken=broken):
        fleet.until_state(beside, "succeeded", seconds=5)
        assert fleet.job(broken)["last_error"].startswith("cannot be started: its log: Is a directory: /")
        assert "is not a plain file" in fleet.clawq("logs", broken, code=74).stderr
        fleet.clawq("retry", broken)
        fleet.until_state(broken, "succeeded")


# ---------------------------------------------------------------- the database


def test_a_database_that_stays_locked_is_outlived(fleet: Fleet) -> None:
    """`database is locked`, for longer than anybody waits."""
    with strange(fleet, busy_ms=200):
        running = fleet.script(waits_for(fleet, "first"))
        fleet.until_state(running, "running")
        holder = apsw.Connection(fleet.home.db)
        holder.execute("BEGIN IMMEDIATE")
        (fleet.scratch / "go").touch()
        until(lambda: "clawq.db is locked by " in fleet.said(), 20, fleet.said)
        holder.execute("ROLLBACK")
        holder.close()
        fleet.until_state(running, "succeeded")
        fleet.until_state(fleet.script("true"), "succeeded")
    assert fleet.lines("first") == ["run"]
    check_sound(fleet)


@pytest.mark.parametrize("damage", ["truncated", "overwritten"])
def test_a_database_damaged_under_a_supervisor_is_said_and_never_replaced(fleet: Fleet, damage: str) -> None:
    """A state file that could not be read was replaced by an empty one."""
    database = Path(fleet.home.db)
    with fleet.supervised() as supervisor:
        fleet.until_state(fleet.script(waits_for(fleet, "first")), "running")
        before = database.stat()
        with open(database, "r+b") as file:
            if damage == "truncated":
                file.truncate(100)
            else:
                file.write(b"\xa5" * before.st_size)
        os.truncate(fleet.home.db + "-wal", 0)
        fleet.clawq("enqueue", "--", "true", code=74)
        (fleet.scratch / "go").touch()
        until(lambda: fleet.home.db in fleet.said(), 20, fleet.said)
        assert supervisor.poll() is None
        said = fleet.end(supervisor, signal.SIGTERM)
    assert "Traceback" not in said, said
    damaged = database.read_bytes()
    for words in (("enqueue", "--", "true"), ("run", "--until-idle"), ("list",)):
        done = fleet.clawq(*words, code=74)
        assert done.stderr.count("\n") == 1, done.stderr
        assert fleet.home.db in done.stderr
    assert database.read_bytes() == damaged
    assert database.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00" * 50, b"1 0 0 0 0 run\n", b"99999999999999999999 x\n"]
)
def test_whatever_stands_in_a_lock_that_nobody_holds_is_no_supervisor(fleet: Fleet, content: bytes) -> None:
    """A pid that was used again: an unrelated process was taken for the daemon, or signalled."""
    os.makedirs(fleet.home.data)
    Path(fleet.home.lock).write_bytes(content)
    job_id = fleet.script("true")
    assert fleet.json("status")["supervisor"]["running"] is False
    fleet.run_until_idle()
    assert fleet.state(job_id) == "succeeded"


# ---------------------------------------------------------------- the clock


def test_a_sleep_of_the_machine_is_no_silence_of_an_agent(fleet: Fleet) -> None:
    """Else whatever runs over night is an alert in the morning."""

    def seen_at_work() -> int | None:
        db = open_db(fleet.home)
        (at,) = db.execute("SELECT worked_at FROM attempts").fetchall()[0]
        db.close()
        return None if at is None else int(str(at))

    with strange(fleet) as clock:
        running = fleet.script("echo said; " + waits_for(fleet, "running"))
        fleet.until_state(running, "running")
        until(lambda: fleet.clawq("logs", running).stdout == "said\n")
        before = time.time_ns() // 1_000_000
        move(clock, DAY_MS)
        until(lambda: (seen_at_work() or 0) - before >= DAY_MS - 60_000)
        (fleet.scratch / "go").touch()
        fleet.until_state(running, "succeeded")


def test_a_clock_that_jumps_a_day_ahead_and_back_loses_and_repeats_nothing(fleet: Fleet) -> None:
    """A clock that was set: deadlines follow the wall, running times and leases the monotonic one."""
    fleet.configure(
        '[kinds.fails]\nbackoff = "1h"\nmax_age = "30d"\nmax_attempts = 9\n'
        f'command = ["sh", "-c", "echo run >> {fleet.scratch}/fails; exit 1"]\n'
        '[budgets.pages]\nlimit = 1\nper = "2s"\n[kinds.spends]\nspends = { pages = 1 }\ncommand = ["true"]\n'
    )
    with strange(fleet) as clock:
        running = fleet.script("--timeout", "1h", waits_for(fleet, "running"))
        doomed = fleet.script("--deadline", "2h", "--max-attempts", "1", waits_for(fleet, "doomed"))
        later = fleet.script("--delay", "3h", f"echo run >> {fleet.scratch}/later")
        failing = fleet.enqueue("fails")
        fleet.until_state(failing, "scheduled")
        fleet.until_state(running, "running")
        fleet.until_state(doomed, "running")
        move(clock, DAY_MS)
        fleet.until_state(later, "succeeded")
        fleet.until_state(doomed, "dead", "expired")
        until(lambda: fleet.lines("fails") == ["run", "run"])
        fleet.until_state(failing, "scheduled")
        spender = fleet.enqueue("spends")
        fleet.until_state(spender, "succeeded")
        move(clock, -DAY_MS)
        fleet.until_state(fleet.enqueue("spends"), "succeeded")
        behind = fleet.script(f"echo run >> {fleet.scratch}/behind")
        fleet.until_state(behind, "succeeded")
        move(clock, 0)
        after = fleet.script("true")
        fleet.until_state(after, "succeeded")
        # Its hour was counted from where the clock had been set back to, and that was a day ago.
        until(lambda: fleet.lines("fails") == ["run"] * 3)
        fleet.until_state(failing, "scheduled")
        assert fleet.state(running) == "running"
        (fleet.scratch / "go").touch()
        fleet.until_state(running, "succeeded")
    assert fleet.lines("fails") == ["run"] * 3
    assert [fleet.lines(name) for name in ("running", "later", "behind")] == [["run"]] * 3
    check_sound(fleet)


# ---------------------------------------------------------------- the home


def test_a_home_with_spaces_quotes_and_letters_of_any_alphabet(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~/Library/Application Support/clawq` has a space; others have worse."""
    monkeypatch.setenv("CLAWQ_HOME", str(Path(home.data).parent / "it's å $HOME; 家"))
    fleet = Fleet(find_home())
    assert fleet.home.socket_fits
    with fleet.supervised():
        job_id = fleet.script(
            f'printf %s "$CLAWQ_RESULT_FILE"; echo 1 > "$CLAWQ_RESULT_FILE"; {" ".join(CLAWQ)} beat'
        )
        fleet.until_state(job_id, "succeeded")
    assert fleet.clawq("logs", job_id).stdout.startswith(fleet.home.run)
    assert fleet.json("show", job_id)["result"] == 1
