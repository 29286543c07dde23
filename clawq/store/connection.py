"""Opening the database: made once under a temporary name, checked, migrated, never replaced.

SQLite comes from apsw, since the builds that many Pythons carry can corrupt a WAL database when two
processes checkpoint it.
"""

from __future__ import annotations

import _thread
import os
import stat
import sys
import time

import apsw

from clawq import states as job
from clawq.errors import Busy, ClawqError, StorageError
from clawq.paths import as_utf8, check_folder, make_private_dir, supervisor_ticks
from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from clawq.paths import Home

APPLICATION_ID = 0x636C7771  # "clwq"
SCHEMA_VERSION = 1
BUSY_MS = 10_000
LOOKING_BUSY_MS = 2_000
"""For whoever only looks: no writer ever keeps a reader waiting, so it is none of ours that does."""
STATEMENTS = 100
OWNERS_STATEMENTS = 500
"""More than the supervisor has: with fewer it would compile most of them anew in each turn."""
BACKSTOP_PAGES = 16_000
"""A producer folds the log of writes back itself when nobody else has done so for 64 MB of it."""

UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_NO_ROOM = (apsw.FullError, apsw.IOError)
_NO_ACCESS = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError, apsw.NoLFSError)
_BUSY = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)


def open_db(home: Home, busy_ms: int = BUSY_MS, owner: bool = False) -> apsw.Connection:
    """A connection to the queue's database, made and migrated when need be.

    ``owner`` is for whoever holds ``clawq.lock``, above all the supervisor: it folds the log of writes back
    (``store/wal.py``), which a cron line must not pay for as long as one runs.

    Raises StorageError (not ours, too new, unreadable) and Busy (locked for longer than ``busy_ms``, or a
    supervisor that does not let the database be migrated).
    """
    with storage_errors(home.db):
        if not _is_there(home.db):
            _create(home)
        db = apsw.Connection(
            sqlite_name(home.db),
            flags=apsw.SQLITE_OPEN_READWRITE,
            statementcachesize=OWNERS_STATEMENTS if owner else STATEMENTS,
        )
        try:
            _prepare(db, busy_ms)
            if owner:
                db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
                db.wal_autocheckpoint(0)
            elif _is_looked_after(home):
                db.wal_autocheckpoint(BACKSTOP_PAGES)
            if _check_ours(db, home.db) < SCHEMA_VERSION:
                from clawq.store.migrate import bring_up

                bring_up(db, home, owner)
        except BaseException:
            db.close()
            raise
    return db


def open_readonly(home: Home, busy_ms: int = BUSY_MS) -> apsw.Connection | None:
    """A connection that can only read; None when there is no database yet.

    Raises StorageError, also for a database of an older clawq that nobody has migrated yet, and Busy.
    """
    with storage_errors(home.db):
        if not _is_there(home.db):
            return None
        db = apsw.Connection(sqlite_name(home.db), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            _prepare(db, busy_ms)
            version = _check_ours(db, home.db)
        except (apsw.CantOpenError, apsw.IOError):
            # No room or no right to make the files beside it, which even readers need.
            db.close()
            if not _is_at_rest(home.db):
                raise
            db = apsw.Connection(_as_it_is(home.db), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            version = _check_ours(db, home.db)
        except BaseException:
            db.close()
            raise
        if version < SCHEMA_VERSION:
            db.close()
            open_db(home, busy_ms).close()
            return open_readonly(home, busy_ms)
    return db


def _is_at_rest(path: str) -> bool:
    """Is all that was ever written in this one file?"""
    try:
        return os.stat(path + "-wal").st_size == 0
    except FileNotFoundError:
        return True


def _as_it_is(path: str) -> str:
    name = sqlite_name(path)
    for special in "%?#":
        name = name.replace(special, f"%{ord(special):02x}")
    return f"file:{name}?immutable=1"


def open_glance(home: Home, busy_ms: int) -> apsw.Connection | None:
    """A connection that can only read, for whoever would rather see nothing than wait or migrate.

    None when there is no database of this very version. Raises StorageError and Busy.
    """
    with storage_errors(home.db):
        if not _is_there(home.db):
            return None
        db = apsw.Connection(sqlite_name(home.db), flags=apsw.SQLITE_OPEN_READONLY)
        _prepare(db, busy_ms)
        if _check_ours(db, home.db) == SCHEMA_VERSION:
            return db
        db.close()
    return None


def memory_db() -> apsw.Connection:
    """An empty queue that goes when it is closed."""
    db = apsw.Connection(":memory:")
    with Immediate(db):
        build_schema(db)
    return db


def _is_there(path: str) -> bool:
    """Whether there is a database to open. Raises StorageError where none can be, and for a pipe, which would
    hang."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        check_folder(os.path.dirname(path))
        if os.path.islink(path):
            raise StorageError(
                f"{path} is a link to nothing", "bring back what it names, or remove it"
            ) from None
        return False
    if not stat.S_ISREG(mode):
        raise StorageError(f"{path} is not a file", "move it away, or set CLAWQ_HOME to another folder")
    return True


def sqlite_name(path: str) -> str:
    """`path` for SQLite, which opens names in UTF-8 only, whatever the locale is."""
    name = as_utf8(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise StorageError(
            f"the path {path!r:.200} is not UTF-8", "set CLAWQ_HOME to another folder"
        ) from None
    return name


def _prepare(db: apsw.Connection, busy_ms: int) -> None:
    db.set_busy_timeout(busy_ms)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    # Or a statement with `LIMIT :n` is compiled anew each time, since the planner wants to know the number.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    db.execute("PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON")
    if sys.platform == "darwin":
        db.execute("PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON")


def _is_looked_after(home: Home) -> bool:
    """Does a supervisor tick, which folds the log of writes back?"""
    return supervisor_ticks(home, time.time_ns() // 1_000_000)


class SchemaMoved(StorageError):
    """Somebody has migrated the database under an open connection: only a newer program may go on."""


def check_schema(db: apsw.Connection, path: str) -> None:
    """Inside a transaction of somebody who keeps the database open. Raises SchemaMoved."""
    version = int(str(db.pragma("user_version")))
    if version != SCHEMA_VERSION:
        raise SchemaMoved(
            f"{path} was brought to schema {version}, this supervisor knows {SCHEMA_VERSION}",
            "start the newer clawq",
        )


def _check_ours(db: apsw.Connection, path: str) -> int:
    application = int(str(db.pragma("application_id")))
    version = int(str(db.pragma("user_version")))
    if application != APPLICATION_ID:
        raise StorageError(
            f"{path} is not a clawq database", "move it away, or set CLAWQ_HOME to another folder"
        )
    if version > SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {version}, this clawq knows up to {SCHEMA_VERSION}", "upgrade clawq"
        )
    return version


def _create(home: Home) -> None:
    """Build the database beside its place and link() it there: thirty first starts make one."""
    make_private_dir(home.data)
    draft = f"{home.db}.{os.getpid()}.{_thread.get_native_id()}.new"
    os.close(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
    try:
        db = apsw.Connection(sqlite_name(draft))
        try:
            db.set_busy_timeout(BUSY_MS)
            db.pragma("journal_mode", "wal")
            with Immediate(db):
                build_schema(db)
        finally:
            db.close()
        try:
            os.link(draft, home.db)
        except FileExistsError:
            return
        sync(home.data)
    finally:
        for name in (draft, draft + "-wal", draft + "-shm"):
            try:
                os.unlink(name)
            except FileNotFoundError:
                pass


def build_schema(db: apsw.Connection) -> None:
    """Create every table on an empty connection, inside the caller's transaction."""
    db.execute(sqlfile.read("schema.sql"))
    db.executemany("INSERT INTO states VALUES (?)", [(state,) for state in job.STATES])
    db.executemany(
        "INSERT INTO transitions VALUES (?, ?)",
        [(start, end) for start, ends in job.TRANSITIONS.items() for end in ends],
    )
    from clawq.settings import NO_FILE

    defaults = sqlfile.read("default_config.json")
    db.execute("INSERT INTO config VALUES (1, ?, ?, NULL, NULL, 0)", (NO_FILE, defaults))
    # Which queue this is, whatever happens to its file, and which of its lives since it was last restored.
    lives = "lower(hex(randomblob(16)))"
    db.execute(f"INSERT INTO meta VALUES ('queue', {lives}), ('life', {lives})")
    db.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION}")


def sync(path: str) -> None:
    """A file's content, or the names in a folder, are on the disk when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Immediate:
    """``with Immediate(db):`` one BEGIN IMMEDIATE transaction; any exception rolls it back."""

    __slots__ = ("db",)

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def __enter__(self) -> apsw.Connection:
        self.db.execute("BEGIN IMMEDIATE")
        return self.db

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                self.db.execute("COMMIT")
                return
            except BaseException:
                _roll_back(self.db)
                raise
        _roll_back(self.db)


def _roll_back(db: apsw.Connection) -> None:
    # After a full disk SQLite may have rolled back by itself.
    if db.in_transaction:
        db.execute("ROLLBACK")


class storage_errors:
    """``with storage_errors(path):`` turn the SQLite and OS errors that mean a bad disk into StorageError.

    Only the codes that mean it: a mistake in SQL stays what it is, unless somebody has taken away what it
    asks for. A lock held too long is Busy.
    """

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> storage_errors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        if issubclass(kind, _BUSY):
            from clawq.store.holder import who_holds

            raise Busy(f"{self.path} is locked by {who_holds(self.path)}", "try again in a moment") from error
        if issubclass(kind, UNREADABLE):
            raise StorageError(
                f"{self.path} cannot be read ({error})", "restore a backup; clawq never replaces the file"
            ) from error
        if issubclass(kind, _NO_ROOM):
            # A copy that fails between two connections names the error of neither.
            said = "the disk is full" if str(error) == "not an error" else error
            raise StorageError(f"{self.path} cannot be written ({said})", "free some disk space") from error
        if issubclass(kind, _NO_ACCESS):
            raise StorageError(
                f"{self.path} cannot be opened ({error})", "check its owner and mode"
            ) from error
        if isinstance(error, OSError):
            from errno import EMFILE

            fix = "raise `ulimit -n`" if error.errno == EMFILE else "check the disk and its rights"
            raise StorageError(f"{error.filename or self.path}: {error.strerror}", fix) from error
        if issubclass(kind, Exception) and not issubclass(kind, ClawqError):
            from clawq.store.whole import MEND, missing

            lost = missing(self.path)
            if lost:
                raise StorageError(f"{self.path} has lost {lost}", MEND) from error


def dicts(cursor: apsw.Cursor) -> list[dict[str, Any]]:
    """All rows of an executed cursor as dicts keyed by column name."""
    try:
        names = [column[0] for column in cursor.get_description()]
    except apsw.ExecutionCompleteError:
        return []
    return [dict(zip(names, row, strict=True)) for row in cursor]
