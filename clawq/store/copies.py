"""Whole databases: copied while they are in use, checked, and put on the disk to stay."""

from __future__ import annotations

import fcntl
import glob
import os
from typing import NamedTuple

import apsw

from clawq.errors import StorageError
from clawq.store.connection import APPLICATION_ID, SCHEMA_VERSION, UNREADABLE, sqlite_name, sync

PAGES = 1_000
"""Copied at a time: Ctrl-C is heard in between."""


class Content(NamedTuple):
    """What a database holds. ``newest_at``: when its last job was accepted, epoch ms, None without jobs."""

    schema: int
    jobs: int
    counts: dict[str, int]
    newest_at: int | None


def copy(source: apsw.Connection, target: str) -> None:
    """Make the new file `target`, mode 0600, a copy of `source` as it is at one moment.

    Others go on using the source: one snapshot is read from beginning to end, however much is written
    meanwhile. The copy needs no files beside it. Raises FileExistsError.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    into = apsw.Connection(sqlite_name(target))
    try:
        # Who makes it syncs it before it gets its name; until then nobody needs a journal of it.
        into.execute("PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF").fetchall()
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with into.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(PAGES)
        finally:
            source.execute("ROLLBACK")
        into.pragma("journal_mode", "delete")
    finally:
        into.close()


def open_copy(path: str) -> apsw.Connection:
    """A database that nobody else uses, to be looked at. Raises what SQLite raises."""
    return apsw.Connection(sqlite_name(path), flags=apsw.SQLITE_OPEN_READONLY)


def check(db: apsw.Connection, path: str, fix: str) -> None:
    """Raises StorageError when it is not ours, newer than this program, or damaged anywhere."""
    try:
        if int(str(db.pragma("application_id"))) != APPLICATION_ID:
            raise StorageError(f"{path} is not a clawq database", fix)
        version = int(str(db.pragma("user_version")))
        if version > SCHEMA_VERSION:
            raise StorageError(
                f"{path} has schema {version}, this clawq knows up to {SCHEMA_VERSION}", "upgrade clawq"
            )
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check(1)")]
        found = found if found != ["ok"] else []
        found += [f"{row[0]} refers to a missing {row[2]}" for row in db.execute("PRAGMA foreign_key_check")]
    except UNREADABLE as error:
        raise StorageError(f"{path} is damaged, or no database ({error})", fix) from error
    if found:
        raise StorageError(f"{path} is damaged ({' '.join(found[0].split())})", fix)


def describe(db: apsw.Connection) -> Content:
    """What it holds, also in the schema of an older clawq."""
    counts = {
        str(state): int(n) for state, n in db.execute("SELECT state, count(*) FROM jobs GROUP BY state")
    }
    return Content(
        int(str(db.pragma("user_version"))),
        sum(counts.values()),
        counts,
        db.execute("SELECT max(created_at) FROM jobs").get,
    )


class Draft:
    """``with Draft(path) as name:`` a file of its own beside `path`, gone afterwards unless it was placed.

    It is locked as long as it is being made, so that whoever makes the next one can tell what a dead
    process has left, and clears it away.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        folder, name = os.path.split(path)
        self._start = os.path.join(folder, f".{name}.")
        self.name = f"{self._start}{os.getpid()}.new"
        self._lock = -1

    def __enter__(self) -> Draft:
        for left in glob.glob(glob.escape(self._start) + "*.new.lock"):
            self._clear(left)
        self._lock = os.open(self.name + ".lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        _unlink_all(self.name, lock=False)
        return self

    def _clear(self, lock: str) -> None:
        try:
            probe = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _unlink_all(lock.removesuffix(".lock"))
        except OSError:
            pass
        finally:
            os.close(probe)

    def place(self, replace: bool) -> None:
        """Give it its name, for good. Raises FileExistsError unless it may `replace` what is there."""
        sync(self.name)
        if replace:
            os.rename(self.name, self.path)
        else:
            _link(self.name, self.path)
        sync(os.path.dirname(self.path))

    def __exit__(self, *failure: object) -> None:
        _unlink_all(self.name)
        os.close(self._lock)


def _link(name: str, path: str) -> None:
    try:
        os.link(name, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links, as on many a stick.
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.rename(name, path)


def _unlink_all(name: str, lock: bool = True) -> None:
    # The lock last: what it stands for may be left by a process that dies here.
    for end in ("-journal", "-wal", "-shm", "", *([".lock"] if lock else ())):
        try:
            os.unlink(name + end)
        except FileNotFoundError:
            pass
