"""The database file: made once, never replaced, refused when it is not ours."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from clawq.errors import Busy, StorageError
from clawq.paths import Home
from clawq.store import lanes
from clawq.store.connection import SCHEMA_VERSION, Immediate, dicts, open_db, open_readonly, storage_errors
from clawq.store.migrate import migrate
from tests.rows import put


def test_a_new_home_gets_a_private_wal_database(home: Home) -> None:
    db = open_db(home)
    assert db.pragma("journal_mode") == "wal"
    assert db.pragma("synchronous") == 2
    assert stat.S_IMODE(os.stat(home.db).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(home.data).st_mode) == 0o700
    assert sorted(name for name in os.listdir(home.data) if ".new" in name) == []


def test_a_statement_with_a_limit_is_compiled_once(home: Home) -> None:
    db = open_db(home)
    for _ in range(20):
        put(db)
    compiled: list[int] = []
    db.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: compiled.append(event["stmt_status"]["SQLITE_STMTSTATUS_REPREPARE"]),
    )
    head = lanes.heads(db)[0][0]
    for most in (1, 2, 9):
        assert len(lanes.following(db, head, most)) == most
    assert compiled == [0, 0, 0, 0]


def test_reading_makes_nothing(home: Home) -> None:
    assert open_readonly(home) is None
    assert not os.path.exists(home.data)


def test_readers_cannot_write(home: Home) -> None:
    open_db(home).close()
    db = open_readonly(home)
    assert db is not None
    with pytest.raises(StorageError), storage_errors(home.db):
        db.execute("DELETE FROM jobs")


def test_thirty_first_starts_make_one_database(home: Home) -> None:
    code = (
        "from clawq.paths import find_home\nfrom clawq.store.connection import open_db, Immediate\n"
        "db = open_db(find_home())\nwith Immediate(db):\n"
        "    db.execute(\"INSERT INTO pauses VALUES ('kind', hex(randomblob(8)), 1)\")"
    )
    started = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(30)]
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
    assert open_db(home).execute("SELECT count(*) FROM pauses").get == 30
    assert [name for name in os.listdir(home.data) if not name.startswith("clawq.db")] == []
    assert [name for name in os.listdir(home.data) if ".new" in name] == []


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough to look at" * 100])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(home: Home, content: bytes) -> None:
    os.makedirs(home.data)
    Path(home.db).write_bytes(content)
    for open_it in (open_db, open_readonly):
        with pytest.raises(StorageError, match=r"clawq\.db") as refusal:
            open_it(home)
        assert refusal.value.exit_code == 74
        assert "\n" not in str(refusal.value)
    assert Path(home.db).read_bytes() == content


def test_another_programs_database_is_refused(home: Home) -> None:
    os.makedirs(home.data)
    other = apsw.Connection(home.db)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    with pytest.raises(StorageError, match="not a clawq database"):
        open_db(home)


def test_a_newer_schema_is_refused(home: Home) -> None:
    db = open_db(home)
    db.pragma("user_version", SCHEMA_VERSION + 1)
    db.close()
    with pytest.raises(StorageError, match="upgrade clawq"):
        open_db(home)


def test_a_mistake_in_sql_is_not_a_broken_disk(home: Home) -> None:
    db = open_db(home)
    with pytest.raises(apsw.SQLError), storage_errors(home.db):
        db.execute("SELECT nonsense FROM nowhere")


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("DROP TABLE lanes", "table lanes, column lanes.band, column lanes.tenant and"),
        ("DELETE FROM meta", "the rows of meta:"),
        ("ALTER TABLE jobs DROP COLUMN result", "column jobs.result:"),
        ("DROP INDEX jobs_due", "index jobs_due:"),
    ],
)
def test_what_somebody_took_out_of_the_database_is_no_mistake_in_sql(
    home: Home, damage: str, lost: str
) -> None:
    db = open_db(home)
    db.execute(f"PRAGMA foreign_keys=OFF; {damage}")
    with pytest.raises(StorageError, match=f"clawq.db has lost {lost}"), storage_errors(home.db):
        db.execute("SELECT nonsense FROM nowhere")


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="nothing tells who holds a lock here")
def test_who_holds_the_lock_is_named(home: Home) -> None:
    open_db(home).close()
    take = f"db = apsw.Connection({home.db!r}); db.execute('BEGIN IMMEDIATE')"
    program = f"import apsw; {take}; print(1, flush=1); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        db = open_db(home, busy_ms=1)
        named = pytest.raises(Busy, match=f"is locked by process {holder.pid} \\(")
        with named, storage_errors(home.db), Immediate(db):
            pass
        holder.kill()


def test_a_lock_that_is_kept_is_busy(home: Home) -> None:
    holder = open_db(home)
    with Immediate(holder):
        other = open_db(home, busy_ms=50)
        with pytest.raises(Busy), storage_errors(home.db), Immediate(other):
            pass


def test_a_failed_transaction_leaves_nothing(home: Home) -> None:
    db = open_db(home)

    def two() -> None:
        with Immediate(db):
            put(db)
            put(db, band=9)

    with pytest.raises(apsw.ConstraintError):
        two()
    assert db.execute("SELECT count(*) FROM jobs").get == 0
    assert not db.in_transaction


@pytest.fixture
def steps(tmp_path: Path) -> str:
    (tmp_path / "2.sql").write_text(
        "CREATE TABLE second (x) STRICT, WITHOUT ROWID;".replace("(x)", "(x TEXT PRIMARY KEY)")
    )
    (tmp_path / "3.sql").write_text(
        "INSERT INTO second VALUES ('third'); ALTER TABLE second ADD COLUMN y TEXT;"
    )
    return str(tmp_path)


def test_migrations_run_in_order_after_a_backup(home: Home, steps: str) -> None:
    db = open_db(home)
    put(db)
    migrate(db, home.db, 1, target=3, folder=steps)
    assert dicts(db.execute("SELECT * FROM second")) == [{"x": "third", "y": None}]
    assert db.pragma("user_version") == 3
    backup = home.db + ".v1.bak"
    assert stat.S_IMODE(os.stat(backup).st_mode) == 0o600
    old = apsw.Connection(backup, flags=apsw.SQLITE_OPEN_READONLY)
    assert (old.pragma("user_version"), old.execute("SELECT count(*) FROM jobs").get) == (1, 1)
    migrate(db, home.db, 1, target=3, folder=steps)  # a second process that saw the old version
    assert db.pragma("user_version") == 3


def test_a_step_that_fails_changes_nothing(home: Home, steps: str) -> None:
    Path(steps, "3.sql").write_text("INSERT INTO missing VALUES (1);")
    db = open_db(home)
    with pytest.raises(apsw.SQLError):
        migrate(db, home.db, 1, target=3, folder=steps)
    assert db.pragma("user_version") == 1
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'second'").get == 0


def test_no_rows_are_no_dicts(home: Home) -> None:
    assert dicts(open_db(home).execute("SELECT * FROM jobs")) == []
