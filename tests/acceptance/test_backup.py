"""`clawq backup` and `restore` with real processes: nothing lost, nothing done twice, nothing half."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

import clawq
from clawq.client import Producer
from clawq.paths import Home
from clawq.store.connection import SCHEMA_VERSION, open_db
from tests.dying import BACKUP, RESTORE
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.rows import check_books, states
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


@pytest.fixture
def copy(fleet: Fleet) -> Path:
    return fleet.scratch / "copy.db"


def refused(fleet: Fleet, *words: object, code: int) -> str:
    """The one line that a command is refused with."""
    done = fleet.clawq(*words, code=code)
    assert done.stdout == ""
    line = done.stderr.removeprefix("clawq: ")
    assert line != done.stderr
    assert line.count("\n") == 1
    return line


def die_at(point: str, *words: object) -> None:
    argv = [sys.executable, "-m", "tests.dying", point, *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL, (done.stdout, done.stderr)


def drafts(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if ".new" in name]


def content(path: Path) -> dict[int, str]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        check_books(db)
        return states(db)
    finally:
        db.close()


def look(home: Home) -> dict[int, str]:
    db = open_db(home)
    try:
        check_books(db)
        return states(db)
    finally:
        db.close()


# ---------------------------------------------------------------- backup


def test_a_backup_says_what_it_holds(fleet: Fleet, copy: Path) -> None:
    fleet.script("true")
    fleet.run_until_idle()
    fleet.script("true")
    told = fleet.json("backup", copy)
    assert {key: told[key] for key in ("file", "verified", "schema", "jobs")} == {
        "file": str(copy),
        "verified": True,
        "schema": SCHEMA_VERSION,
        "jobs": 2,
    }
    assert (told["counts"]["queued"], told["counts"]["succeeded"]) == (1, 1)
    assert told["bytes"] == copy.stat().st_size
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert content(copy) == {1: "succeeded", 2: "queued"}
    assert os.listdir(fleet.scratch) == ["copy.db"]
    line = fleet.clawq("backup", "--force", copy).stdout
    assert line.startswith(f"{copy}: 2 jobs (1 queued, 1 succeeded); ")


def test_it_shows_one_moment_while_everything_runs(fleet: Fleet, copy: Path) -> None:
    # Each transaction makes two jobs: a copy of one moment has an even number of them.
    fleet.configure(ROOM)
    fleet.clawq("pause")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with fleet.supervised(), subprocess.Popen([sys.executable, "-c", PAIRS], env=env) as producer:
        try:
            jobs = [0]
            for number in range(5):
                made = fleet.scratch / f"copy-{number}.db"
                until(lambda: fleet.json("status")["counts"].get("queued", 0) > jobs[-1])
                jobs.append(fleet.json("backup", made)["jobs"])
                content(made)
        finally:
            producer.kill()
    assert [n % 2 for n in jobs] == [0] * 6
    assert jobs == sorted(set(jobs)), "nothing was written meanwhile"


ROOM = "[limits]\nmax_queued = 1000000\nmax_queued_per_tenant = 1000000\n"
PAIRS = """
import clawq.client
with clawq.client.Producer() as producer:
    while True:
        producer.enqueue_many([{"command": ["true"]}] * 2)
"""


def test_there_must_be_a_queue(fleet: Fleet, copy: Path) -> None:
    assert "no queue" in refused(fleet, "backup", copy, code=1)
    assert not os.path.exists(fleet.home.data)
    assert not copy.exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{folder}", "is a folder"),
        ("{folder}/", "not a file's name"),
        ("{link}", "is a symbolic link"),
        ("{dangling}", "is a symbolic link"),
        ("{db}", "the queue's own file"),
        ("{db}-wal", "the queue's own file"),
        ("{hard}", "the queue's own file"),
        ("{link_to_db}", "the queue's own file"),
        ("{folder}/none/copy.db", "there is no folder"),
        ("/dev/null", "not a plain file"),
        ("{there}", "is there already"),
        ("", "not a file's name"),
    ],
)
def test_no_backup_goes_there(fleet: Fleet, target: str, said: str) -> None:
    fleet.script("true")
    folder = fleet.scratch / "folder"
    folder.mkdir()
    places: dict[str, Any] = {"folder": folder, "db": fleet.home.db, "there": folder / "there"}
    places["there"].write_text("precious")
    for name, to in (("link", "there"), ("dangling", "nowhere"), ("link_to_db", fleet.home.db)):
        places[name] = folder / name
        places[name].symlink_to(to)
    places["hard"] = folder / "hard"
    os.link(fleet.home.db, places["hard"])
    words = ["backup", target.format(**places), *([] if target == "{there}" else ["--force"])]
    assert said in refused(fleet, *words, code=2)
    assert places["there"].read_text() == "precious"
    assert look(fleet.home) == {1: "queued"}
    assert drafts(folder) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_that_may_not_be_written(fleet: Fleet) -> None:
    fleet.script("true")
    closed = fleet.scratch / "closed"
    closed.mkdir(mode=0o500)
    assert "Permission denied" in refused(fleet, "backup", closed / "copy.db", code=74)


def test_a_full_disk_leaves_the_older_copy(fleet: Fleet, copy: Path) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    before = copy.read_bytes()
    # No file may grow beyond 130 blocks, of 512 or 1024 bytes: less than the copy needs.
    assert len(before) > 130 * 1024
    script = 'trap "" XFSZ; ulimit -f 130; exec "$@"'
    argv = ["sh", "-c", script, "sh", *CLAWQ, "backup", "--force", str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (74, "")
    assert done.stderr.startswith(f"clawq: {copy} cannot be written")
    assert done.stderr.count("\n") == 1
    assert copy.read_bytes() == before
    assert os.listdir(fleet.scratch) == ["copy.db"]


@pytest.mark.parametrize("point", BACKUP)
def test_killed_at_any_point_it_leaves_no_half_of_a_file(fleet: Fleet, copy: Path, point: str) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    fleet.script("true")
    die_at(point, "backup", "--force", copy)
    assert content(copy) == {1: "queued"} | ({2: "queued"} if point == "once it has its name" else {})
    fleet.clawq("backup", "--force", copy)
    assert content(copy) == {1: "queued", 2: "queued"}
    assert os.listdir(fleet.scratch) == ["copy.db"]
    assert look(fleet.home) == {1: "queued", 2: "queued"}


# ---------------------------------------------------------------- restore


def test_what_was_done_since_is_not_done_again(fleet: Fleet, copy: Path) -> None:
    for number in (1, 2):
        fleet.script(f"echo {number} >> {fleet.scratch}/done")
    fleet.clawq("backup", copy)
    fleet.script(f"echo 3 >> {fleet.scratch}/done")
    fleet.run_until_idle()
    fleet.script(f"echo 4 >> {fleet.scratch}/done")
    told = fleet.json("restore", copy)
    assert (told["ended"], told["kept"], told["next_job"]) == (2, 2, 5)
    assert look(fleet.home) == {1: "succeeded", 2: "succeeded", 3: "succeeded", 4: "queued"}
    assert content(Path(told["replaced"])) == look(fleet.home)
    assert stat.S_IMODE(os.stat(told["replaced"]).st_mode) == 0o600
    assert drafts(Path(fleet.home.data)) == []
    fleet.clawq("run", "--until-idle")
    assert len(fleet.lines("done")) == 3, "it was to be left paused"
    assert fleet.script("true") == 5
    fleet.clawq("resume")
    fleet.run_until_idle()
    assert sorted(fleet.lines("done")) == ["1", "2", "3", "4"]


def test_it_says_what_it_did_and_what_is_next(fleet: Fleet, copy: Path) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    said = fleet.clawq("restore", copy).stdout
    for words in (f"restored {copy}: 1 job (1 queued)", "clawq.db.replaced-", "paused", "clawq resume"):
        assert words in said


def test_what_a_person_undid_is_as_it_was(fleet: Fleet, copy: Path) -> None:
    job_id = fleet.enqueue("--priority", "5", "--", "true")
    fleet.clawq("backup", copy)
    fleet.clawq("edit", job_id, "--priority", "9")
    fleet.clawq("restore", copy)
    assert fleet.job(job_id)["priority"] == 5


def test_a_pruned_job_does_not_come_back(fleet: Fleet, copy: Path) -> None:
    fleet.enqueue("--dedupe-key", "k", "--", "sh", "-c", f"echo 1 >> {fleet.scratch}/done")
    fleet.clawq("backup", copy)
    fleet.run_until_idle()
    fleet.clawq("prune", "--older-than", "0s")
    assert fleet.json("restore", copy)["pruned"] == 1
    assert look(fleet.home) == {}
    fleet.clawq("resume")
    fleet.run_until_idle()
    assert fleet.lines("done") == ["1"]
    assert fleet.script("true") == 2


def test_what_is_no_plain_file_is_not_copied_without_end(fleet: Fleet, copy: Path) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    for path in Path(fleet.home.data).glob("clawq.db*"):
        path.unlink()
    Path(fleet.home.db).symlink_to("/dev/zero")
    assert "is no plain file" in fleet.clawq("restore", copy, code=74).stderr


def test_refused_beside_a_supervisor_and_over_a_living_agent(fleet: Fleet, copy: Path) -> None:
    go = fleet.scratch / "go"
    job_id = fleet.script(f"echo run >> {fleet.scratch}/runs; while [ ! -e {go} ]; do sleep 0.05; done")
    fleet.clawq("backup", copy)
    supervisor = fleet.start()
    fleet.until_state(job_id, "running")
    assert f"a supervisor is running here (pid {supervisor.pid})" in refused(fleet, "restore", copy, code=75)
    supervisor.kill()
    supervisor.wait()
    assert "still at work" in refused(fleet, "restore", copy, code=75)
    assert look(fleet.home) == {job_id: "running"}
    go.touch()
    attempt = next(Path(fleet.home.run).glob("*.attempt"))
    until(lambda: "e 0" in attempt.read_text())
    until(lambda: fleet.clawq("restore", copy, code=None).returncode == 0)
    fleet.run_until_idle()
    assert look(fleet.home) == {job_id: "succeeded"}
    assert fleet.lines("runs") == ["run"]


def test_a_clean_host(fleet: Fleet, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/operations.md says: clawq.toml and a backup, on a machine that has never seen this queue."""
    fleet.configure('[kinds.note]\ncommand = ["sh", "-c", "echo $CLAWQ_JOB_ID >> $OUT"]\n')
    for _ in range(2):
        fleet.enqueue("note", "--env", f"OUT={fleet.scratch}/notes")
    fleet.run_until_idle()
    fleet.enqueue("note", "--env", f"OUT={fleet.scratch}/notes")
    go = fleet.scratch / "go"
    with fleet.supervised():
        fleet.until_state(3, "succeeded")
        running = fleet.script(f"while [ ! -e {go} ]; do sleep 0.05; done")
        fleet.until_state(running, "running")
        fleet.clawq("pause")
        waiting = fleet.enqueue("note", "--env", f"OUT={fleet.scratch}/notes", "--dedupe-key", "k")
        fleet.clawq("backup", copy)
        go.touch()
    toml = Path(fleet.home.config).read_text()
    # The old machine is gone.
    fresh = Path(fleet.home.data).parent / "fresh host"
    shutil.rmtree(fleet.home.data)
    monkeypatch.setenv("CLAWQ_HOME", str(fresh))
    fresh.mkdir()
    (fresh / "clawq.toml").write_text(toml)
    told = fleet.json("restore", copy)
    assert (told["replaced"], told["unknown"], told["to_judge"]) == (None, [running], [])
    assert told["next_job"] == waiting + 1
    assert [row["id"] for row in fleet.json("unknown")] == [running]
    assert fleet.json("show", running)["job"]["last_error"] == "how it ended is not known after a restore"
    fleet.clawq("reconcile", running, "--succeeded")
    fleet.clawq("resume")
    fleet.run_until_idle()
    assert sorted(fleet.lines("notes")) == ["1", "2", "3", str(waiting)]
    assert fleet.json("enqueue", "note", "--dedupe-key", "k")["outcome"] == "duplicate"
    assert fleet.script("true") == waiting + 1
    assert stat.S_IMODE(os.stat(fresh / "clawq.db").st_mode) == 0o600


def test_what_a_fresh_host_took_before_the_restore_stays(fleet: Fleet, copy: Path) -> None:
    """Cron was quicker: the fresh queue has jobs with numbers that the backup uses."""
    for number in range(3):
        fleet.script(f"echo old {number} >> {fleet.scratch}/done")
    fleet.clawq("backup", copy)
    shutil.rmtree(fleet.home.data)
    fleet.script(f"echo new >> {fleet.scratch}/done")
    fleet.run_until_idle()
    fleet.script(f"echo newer >> {fleet.scratch}/done")
    told = fleet.json("restore", copy)
    assert (told["kept"], told["not_kept"]) == (2, 0)
    fleet.clawq("resume")
    fleet.run_until_idle()
    assert sorted(fleet.lines("done")) == ["new", "newer", "old 0", "old 1", "old 2"]
    assert set(look(fleet.home).values()) == {"succeeded"}
    assert fleet.json("show", 4)["attempts"][0]["outcome"] == "succeeded"


@pytest.mark.parametrize("damage", ["garbage", "cut short", "empty"])
def test_a_damaged_queue_is_kept_and_replaced(fleet: Fleet, copy: Path, damage: str) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    for _ in range(3):
        fleet.script("true")
    fleet.run_until_idle()
    db = Path(fleet.home.db)
    broken = {"garbage": b"x" * 9_000, "cut short": db.read_bytes()[:9_000], "empty": b""}[damage]
    db.write_bytes(broken)
    Path(fleet.home.db + "-wal").write_bytes(b"")
    told = fleet.json("restore", copy)
    assert not told["replaced_readable"]
    assert Path(told["replaced"]).read_bytes()[: len(broken)] == broken
    # The logs tell that four jobs were run; more may have been accepted.
    assert told["next_job"] > 1_000
    assert look(fleet.home) == {1: "queued"}
    assert fleet.script("true") == told["next_job"]


@pytest.mark.parametrize("lost", ["DROP TABLE jobs", "DROP TABLE config", "DROP TABLE attempts"])
def test_a_queue_that_lost_a_table_is_kept_and_replaced(fleet: Fleet, copy: Path, lost: str) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    fleet.run_until_idle()
    db = apsw.Connection(fleet.home.db)
    db.execute(f"PRAGMA foreign_keys=OFF; {lost}")
    db.close()
    assert "`clawq restore FILE`" in fleet.clawq("status", code=74).stderr
    told = fleet.json("restore", copy)
    assert not told["replaced_readable"]
    assert os.path.exists(told["replaced"])
    assert look(fleet.home) == {1: "queued"}
    assert fleet.script("true") == told["next_job"]


def test_another_programs_database_is_not_replaced(fleet: Fleet, copy: Path) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    for end in ("", "-wal", "-shm"):
        Path(fleet.home.db + end).unlink(missing_ok=True)
    other = apsw.Connection(fleet.home.db)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    assert "is not a clawq database" in refused(fleet, "restore", copy, code=74)


def not_a_backup(fleet: Fleet, copy: Path, what: str) -> Path:
    bad = fleet.scratch / "bad.db"
    if what == "missing":
        return bad
    if what == "a folder":
        bad.mkdir()
    elif what == "the queue itself":
        return Path(fleet.home.db)
    elif what == "text":
        bad.write_text("not a database at all\n" * 500)
    elif what == "empty":
        bad.touch()
    elif what == "cut short":
        bad.write_bytes(copy.read_bytes()[:-20_000])
    elif what == "a flipped page":
        whole = bytearray(copy.read_bytes())
        whole[8_192:12_288] = os.urandom(4_096)
        bad.write_bytes(whole)
    elif what == "another program's":
        db = apsw.Connection(str(bad))
        db.execute("CREATE TABLE jobs (id)")
        db.close()
    elif what == "newer":
        shutil.copy(copy, bad)
        db = apsw.Connection(str(bad))
        db.pragma("user_version", SCHEMA_VERSION + 1)
        db.close()
    return bad


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("missing", 2, "No such file"),
        ("a folder", 2, "is a folder"),
        ("the queue itself", 2, "is the queue itself"),
        ("text", 74, "is damaged, or no database"),
        ("empty", 74, "is not a clawq database"),
        ("cut short", 74, "damaged"),
        ("a flipped page", 74, "damaged"),
        ("another program's", 74, "is not a clawq database"),
        ("newer", 74, "upgrade clawq"),
    ],
)
def test_what_is_no_backup_changes_nothing(fleet: Fleet, copy: Path, what: str, code: int, said: str) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    fleet.script("true")
    assert said in refused(fleet, "restore", not_a_backup(fleet, copy, what), code=code)
    assert look(fleet.home) == {1: "queued", 2: "queued"}
    assert not [name for name in os.listdir(fleet.home.data) if "replaced" in name or ".new" in name]


@pytest.mark.parametrize("point", RESTORE)
def test_killed_at_any_point_the_old_or_the_new_is_in_place(fleet: Fleet, copy: Path, point: str) -> None:
    for _ in range(3):
        fleet.script("true")
    fleet.clawq("backup", copy)
    fleet.clawq("cancel", 1)
    fleet.clawq("edit", 2, "--priority", "7")
    fleet.script("true")
    die_at(point, "restore", copy)
    # The end of job 1 and job 4 are in both; what tells them apart is the edit.
    assert look(fleet.home) == {1: "cancelled", 2: "queued", 3: "queued", 4: "queued"}
    restored = point == "once it is in place"
    assert fleet.job(2)["priority"] == (0 if restored else 7)
    fleet.clawq("restore", copy)
    assert fleet.job(2)["priority"] == 0
    assert drafts(Path(fleet.home.data)) == []
    fleet.clawq("resume")
    fleet.run_until_idle()
    assert look(fleet.home) == {1: "cancelled", 2: "succeeded", 3: "succeeded", 4: "succeeded"}


def test_a_producer_that_has_it_open_goes_on_with_the_restored_one(fleet: Fleet, copy: Path) -> None:
    with Producer() as producer:
        producer.enqueue({"command": ["true"]})
        fleet.clawq("backup", copy)
        fleet.clawq("restore", copy)
        assert producer.enqueue({"command": ["true"]}).job_id == 2
    assert clawq.enqueue(command=["true"]).job_id == 3
    assert look(fleet.home) == {1: "queued", 2: "queued", 3: "queued"}


def test_nothing_that_is_accepted_during_a_restore_is_lost(fleet: Fleet, copy: Path) -> None:
    fleet.configure(ROOM)
    fleet.script("true")
    fleet.clawq("backup", copy)
    argv = [sys.executable, "-c", ACCEPTING]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as producer:
        assert producer.stdout
        accepted = [int(producer.stdout.readline())]
        try:
            for _ in range(3):
                fleet.clawq("restore", copy)
        finally:
            producer.kill()
        accepted += [int(line) for line in producer.stdout if line.endswith("\n")]
    assert len(set(accepted)) == len(accepted) > 10
    assert set(accepted) <= set(look(fleet.home))


ACCEPTING = """
import clawq.client
with clawq.client.Producer() as producer:
    while True:
        print(producer.enqueue({"command": ["true"]}).job_id, flush=True)
"""


def test_not_from_inside_a_job(fleet: Fleet, copy: Path) -> None:
    fleet.script("true")
    fleet.clawq("backup", copy)
    argv = [*CLAWQ, "restore", str(copy)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "CLAWQ_JOB_ID": "1", "CLAWQ_TOKEN": "5"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (65, "")
