"""`clawq enqueue` on disks that are full, read-only or somebody else's: exit 74, one line, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from clawq.paths import Home
from tests.producers import answer, clawq, rows
from tests.rows import check_books


@pytest.fixture
def small_disk(home: Home) -> Iterator[Path]:
    """The home on a file system of two megabytes of its own."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root on Linux")
    folder = Path(home.data)
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free; the file that takes them."""
    ballast = folder / "ballast"
    with open(ballast, "ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def test_a_disk_that_fills_up_is_said_and_loses_nothing(home: Home, small_disk: Path) -> None:
    clawq("enqueue", "--dedupe-key", "first", "--", "true")
    ballast = fill(small_disk)
    accepted = 1
    payload = json.dumps("x" * 60_000)
    for _ in range(20):  # what is left in the files' last blocks may take a job or two
        done = clawq("enqueue", "--json", "--payload", "-", "--", "true", stdin=payload.encode(), code=None)
        if done.returncode == 74:
            break
        assert done.returncode == 0
        accepted += 1
    told = json.loads(done.stdout)
    assert (done.returncode, told["outcome"], told["reason"], told["job_id"]) == (
        74,
        "rejected",
        "storage",
        None,
    )
    assert done.stderr.startswith(f"clawq: {home.db} cannot be written (")
    assert done.stderr.endswith("): free some disk space\n")
    assert done.stderr.count("\n") == 1
    # A batch stops at once instead of failing a million times.
    lines = (json.dumps({"command": ["true"], "payload": "x" * 60_000}) + "\n").encode() * 3
    done = clawq("enqueue", "--batch", "-", "--json", stdin=lines, code=74)
    assert {json.loads(line)["reason"] for line in done.stdout.splitlines()} == {"storage"}
    assert len(done.stderr.splitlines()) == 1
    ballast.unlink()
    assert answer("enqueue", "--dedupe-key", "first", "--", "true")["outcome"] == "duplicate"
    clawq("enqueue", "--", "true")
    assert rows(home, "SELECT count(*) FROM jobs") == [(accepted + 1,)]
    db = apsw.Connection(home.db)
    check_books(db)
    db.close()


def test_a_disk_without_room_for_the_first_job_keeps_no_half_database(home: Home, small_disk: Path) -> None:
    ballast = fill(small_disk)
    done = clawq("enqueue", "--", "true", code=74)
    assert done.stderr.startswith("clawq: ")
    assert done.stderr.count("\n") == 1
    assert os.listdir(small_disk) == ["ballast"]
    ballast.unlink()
    assert answer("enqueue", "--", "true")["job_id"] == 1


def test_a_disk_that_turned_read_only_is_said(home: Home, small_disk: Path) -> None:
    clawq("enqueue", "--", "true")
    before = Path(home.db).read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        done = clawq("enqueue", "--", "true", code=74)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert done.stderr.startswith(f"clawq: {home.db} cannot be ")
    assert done.stderr.count("\n") == 1
    assert Path(home.db).read_bytes() == before
    assert answer("enqueue", "--", "true")["job_id"] == 2


@pytest.mark.parametrize("trouble", ["read-only", "full"])
def test_who_only_looks_can_look_at_a_disk_that_takes_nothing(
    home: Home, small_disk: Path, trouble: str
) -> None:
    clawq("enqueue", "--hold", "--", "true")
    db = apsw.Connection(home.db)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    db.execute("UPDATE meta SET value = value")
    db.close()  # the last one takes the files beside it away
    assert not os.path.exists(home.db + "-wal")
    if trouble == "full":
        fill(small_disk)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for words in (["status"], ["list"], ["why", "1"], ["show", "1"]):
        assert "held" in clawq(*words).stdout
    assert clawq("enqueue", "--", "true", code=74).stderr.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [b"my diary\n" * 1_000, b"SQLite format 3\0" + b"\xff" * 8_000, b"x"],
    ids=["text", "torn header", "one byte"],
)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(home: Home, content: bytes) -> None:
    os.makedirs(home.data)
    Path(home.db).write_bytes(content)
    done = clawq("enqueue", "--json", "--", "true", code=74)
    assert json.loads(done.stdout)["reason"] == "storage"
    assert home.db in done.stderr
    assert done.stderr.count("\n") == 1
    assert Path(home.db).read_bytes() == content


def test_somebody_elses_database_is_refused_and_left_as_it_is(home: Home) -> None:
    os.makedirs(home.data)
    db = apsw.Connection(home.db)
    db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY)")
    db.close()
    before = Path(home.db).read_bytes()
    done = clawq("enqueue", "--", "true", code=74)
    assert done.stderr == (
        f"clawq: {home.db} is not a clawq database: move it away, or set CLAWQ_HOME to another folder\n"
    )
    assert Path(home.db).read_bytes() == before


def test_a_page_torn_in_the_middle_is_refused_and_not_replaced(home: Home) -> None:
    clawq("enqueue", "--", "true")
    rows(home, "PRAGMA wal_checkpoint(TRUNCATE)")
    size = os.path.getsize(home.db)
    with open(home.db, "r+b") as file:
        file.seek(4_096)
        file.write(b"\xa5" * (size - 4_096))
    torn = Path(home.db).read_bytes()
    done = clawq("enqueue", "--", "true", code=74)
    assert done.stderr.startswith(f"clawq: {home.db} cannot be read (")
    assert "clawq never replaces the file" in done.stderr
    assert Path(home.db).read_bytes() == torn


def test_a_folder_that_is_a_file_is_one_line(home: Home) -> None:
    Path(home.data).write_text("")
    done = clawq("enqueue", "--", "true", code=74)
    assert home.data in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_lock_of_a_moment_is_waited_for(home: Home) -> None:
    clawq("enqueue", "--", "true")
    holder = apsw.Connection(home.db)
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.4, holder.execute, ("ROLLBACK",))
    release.start()
    try:
        assert answer("enqueue", "--", "true")["job_id"] == 2
    finally:
        release.join()
        holder.close()
