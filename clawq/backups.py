"""A copy of the queue for bad days, and the way back from it.

A restore holds ``clawq.lock`` from beginning to end, so that no supervisor starts beside it. It writes into
the database file that is there, in one transaction: producers that have it open go on with the restored one,
and at whatever moment the restore dies, either the old or the new one is in place.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import time
from dataclasses import dataclass, field

import apsw

from clawq.errors import Busy, ClawqError, StorageError, UsageError
from clawq.host import attempt_file, instance, logs
from clawq.paths import Home, make_private_dir
from clawq.store import copies, merge, migrate
from clawq.store.connection import BUSY_MS, UNREADABLE, open_db, open_readonly, storage_errors, sync
from clawq.store.copies import Content
from clawq.store.merge import Merged, Settled
from clawq.store.whole import missing

_NOT_KEPT = "no copy was kept; `clawq restore` takes an earlier one"
BESIDE = ("-wal", "-shm")
"""Files that belong to a database in use."""


class NoQueue(ClawqError):
    reason = "no_queue"


@dataclass(frozen=True, slots=True)
class Backup:
    """``at``: epoch ms of the moment that the copy shows."""

    path: str
    size: int
    at: int
    content: Content


@dataclass(slots=True)
class Restored:
    """``replaced``: where the former database is kept; None where there was none. ``content`` is what the
    restored one holds now, with what was taken over from the former."""

    source: str
    backup: Content
    content: Content
    replaced: str | None
    readable: bool
    """The former database could be read, or there was none."""
    merged: Merged
    settled: Settled
    next_job: int
    paused: bool = True
    notes: list[str] = field(default_factory=list)


def back_up(home: Home, path: str, force: bool = False) -> Backup:
    """Copy the queue to the new file `path`, mode 0600, while everything goes on; checked before it appears.

    Raises UsageError (a place where no backup can go, or a file that is there, without `force`), NoQueue,
    StorageError and Busy.
    """
    path = _absolute(path)
    _check_target(home, path, force)
    db = open_readonly(home)
    if db is None:
        raise NoQueue(f"there is no queue in {home.data}", "nothing was ever enqueued here")
    try:
        with storage_errors(path), copies.Draft(path) as draft:
            at = time.time_ns() // 1_000_000
            try:
                copies.copy(db, draft.name)
            except UNREADABLE as error:
                raise StorageError(f"{home.db} is damaged ({error})", _NOT_KEPT) from error
            made = copies.open_copy(draft.name)
            try:
                copies.check(made, home.db, _NOT_KEPT)
                content = copies.describe(made)
            finally:
                made.close()
            try:
                draft.place(replace=force)
            except FileExistsError:
                raise _exists(path) from None
            return Backup(path, os.stat(path).st_size, at, content)
    finally:
        db.close()


def _absolute(path: str) -> str:
    if not path or path.endswith("/"):
        raise UsageError(f"{path or 'nothing'!r} is not a file's name", "name the file to write")
    return os.path.abspath(os.path.expanduser(path))


def _check_target(home: Home, path: str, force: bool) -> None:
    own = [home.db + end for end in ("", *BESIDE)] + [home.lock, home.sock, home.config]
    folder = os.path.dirname(path)
    if os.path.realpath(path) in map(os.path.realpath, own):
        raise UsageError(f"{path} is the queue's own file", "name another file for the copy")
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        if not os.path.isdir(folder):
            raise UsageError(f"there is no folder {folder}", "make it first") from None
        return
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "name another file for the copy") from error
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder", "name a file in it")
    if stat.S_ISLNK(mode):
        raise UsageError(f"{path} is a symbolic link", "name the file itself")
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path} is not a plain file", "name another file for the copy")
    if os.path.exists(home.db) and os.path.samefile(path, home.db):
        raise UsageError(f"{path} is the queue's own file", "name another file for the copy")
    if not force:
        raise _exists(path)


def _exists(path: str) -> UsageError:
    return UsageError(f"{path} is there already", "name another file, or replace it with --force")


def restore(home: Home, source: str) -> Restored:
    """Put the queue of a backup in the place of this home's, and leave it paused.

    Raises UsageError, StorageError (not ours, damaged, newer) and Busy (a supervisor runs, or an agent).
    """
    source = _absolute(source)
    _check_source(home, source)
    _check_replaced(home)
    with storage_errors(home.data):
        make_private_dir(home.data)
        lock = instance.acquire(home.lock)
    if lock is None:
        holder = instance.living(home.lock)
        who = f" (pid {holder.pid})" if holder else ""
        raise Busy(
            f"a supervisor is running here{who}", "`clawq stop --drain` ends it when nothing runs any more"
        )
    try:
        _refuse_living_agents(home)
        for left in glob.glob(glob.escape(home.data) + "/.clawq.db.*.new"):
            os.unlink(left)
        return _restore(home, source)
    finally:
        lock.close()


def _check_replaced(home: Home) -> None:
    """What is replaced is kept, and a device would be copied without end."""
    if os.path.exists(home.db) and not os.path.isfile(home.db):
        raise StorageError(f"{home.db} is no plain file", "move away what stands there")


def _check_source(home: Home, source: str) -> None:
    try:
        mode = os.stat(source).st_mode
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}", "name a file that `clawq backup` made") from error
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no plain file"
        raise UsageError(f"{source} is {what}", "name a file that `clawq backup` made")
    if os.path.exists(home.db) and os.path.samefile(source, home.db):
        raise UsageError(f"{source} is the queue itself", "name a file that `clawq backup` made")


def _refuse_living_agents(home: Home) -> None:
    """Raises Busy while an agent of any attempt is alive: what it does would be recorded nowhere."""
    alive = []
    for token, path in _attempt_files(home).items():
        probe = attempt_file.open_probe(path)
        if probe is None:
            continue
        if attempt_file.is_locked(probe):
            alive.append(token)
        os.close(probe)
    if alive:
        agents = "an agent is" if len(alive) == 1 else f"{len(alive)} agents are"
        raise Busy(
            f"{agents} still at work (attempt {alive[0]})",
            "`clawq run` takes over what runs, `clawq stop --drain` or --now then ends it",
        )


def _attempt_files(home: Home) -> dict[int, str]:
    """Token -> the path of its attempt file."""
    try:
        names = os.listdir(home.run)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    tokens = [attempt_file.token_of(name) for name in names if name.endswith(attempt_file.SUFFIX)]
    return {token: attempt_file.path_of(home.run, token) for token in tokens if token is not None}


def _restore(home: Home, source: str) -> Restored:
    now = time.time_ns() // 1_000_000
    with copies.Draft(home.db) as draft:
        backup = _draft(source, draft.name)
        current = _open_current(home)
        try:
            if current is None:
                return _put_in_place(home, source, backup, draft, now)
            return _write_over(home, source, backup, draft.name, current, now)
        finally:
            if current is not None:
                current.close()


def _draft(source: str, name: str) -> Content:
    """Make a copy of the backup, checked and brought to this program's schema. What the backup holds."""
    with storage_errors(source):
        db = copies.open_copy(source)
        try:
            copies.check(db, source, "name another file that `clawq backup` made")
            content = copies.describe(db)
            copies.copy(db, name)
        finally:
            db.close()
        made = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            migrate.take_steps(made)
        finally:
            made.close()
    return content


def _open_current(home: Home) -> apsw.Connection | None:
    """The database that is to be replaced; None where there is none, or one that cannot even be opened.

    Raises StorageError for another program's, and for that of a newer clawq.
    """
    if not os.path.exists(home.db) or os.path.getsize(home.db) == 0:
        return None
    try:
        return open_db(home, owner=True)
    except StorageError as error:
        if isinstance(error.__cause__, UNREADABLE):
            return None
        raise


def _write_over(
    home: Home, source: str, backup: Content, draft: str, current: apsw.Connection, now: int
) -> Restored:
    """Replace the content of a database that others may have open, in one transaction of theirs."""
    replaced = _free_name(home, now)
    made = apsw.Connection(draft, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI)
    reader = open_readonly(home, BUSY_MS)
    assert reader is not None
    try:
        with storage_errors(home.db), current.backup("main", made, "main") as swap:
            # Takes the lock for writing: nothing is accepted from here on that the copy would not have.
            swap.step(0)
            readable = _keep(home, reader, replaced)
            merged = Merged()
            if readable:
                try:
                    merged = merge.merge(made, replaced)
                except UNREADABLE:
                    readable = False
                except apsw.Error:
                    if missing(replaced) is None:
                        raise
                    readable = False
            if not readable:
                merge.go_on_above(made, *_numbers_seen(home))
            settled = merge.settle(made, _attempt_files(home), now)
            content, next_job = copies.describe(made), merge.next_job(made)
            while not swap.done:
                swap.step(copies.PAGES)
        with storage_errors(home.db):
            try:
                current.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            except (apsw.BusyError, apsw.LockedError):
                pass  # somebody reads; the supervisor does it
    finally:
        reader.close()
        made.close()
    return Restored(source, backup, content, replaced, readable, merged, settled, next_job)


def _keep(home: Home, reader: apsw.Connection, replaced: str) -> bool:
    """Copy the database that is replaced; False when it cannot be read as one."""
    try:
        with copies.Draft(replaced) as draft:
            copies.copy(reader, draft.name)
            draft.place(replace=False)
        return True
    except UNREADABLE:
        _keep_files(home, replaced)
        return False


def _keep_files(home: Home, replaced: str) -> None:
    """Copy the files as they are, whatever they hold."""
    for end in ("", *BESIDE):
        if os.path.exists(home.db + end):
            shutil.copyfile(home.db + end, replaced + end)
            os.chmod(replaced + end, 0o600)
            sync(replaced + end)
    sync(home.data)


def _put_in_place(home: Home, source: str, backup: Content, draft: copies.Draft, now: int) -> Restored:
    """Where there was no database, or a file that nobody could open as one."""
    there = os.path.lexists(home.db)
    replaced = _free_name(home, now) if there else None
    with storage_errors(home.db):
        if replaced is not None:
            _keep_files(home, replaced)
        made = apsw.Connection(draft.name, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            last_job, last_token = _numbers_seen(home)
            if there or last_job:
                merge.go_on_above(made, last_job, last_token)
            settled = merge.settle(made, _attempt_files(home), now)
            content, next_job = copies.describe(made), merge.next_job(made)
            made.pragma("journal_mode", "wal")
        finally:
            made.close()
        # What they hold belongs to the file that goes: beside the new one they would spoil it.
        for end in BESIDE:
            try:
                os.unlink(home.db + end)
            except FileNotFoundError:
                pass
        try:
            draft.place(replace=there)
        except FileExistsError:
            raise Busy(
                "a new queue was begun here meanwhile", "restore again: it is then taken over"
            ) from None
    return Restored(source, backup, content, replaced, not there, Merged(), settled, next_job)


def _numbers_seen(home: Home) -> tuple[int, int]:
    """(highest job, highest token) that the logs and attempt files of this home bear."""
    try:
        names = os.listdir(home.logs)
    except FileNotFoundError:
        names = []
    seen = [found for found in map(logs.whose, names) if found]
    jobs = [job_id for job_id, _ in seen]
    tokens = [token for _, token in seen]
    return max(jobs, default=0), max([*tokens, *_attempt_files(home)], default=0)


def _free_name(home: Home, now: int) -> str:
    start = f"{home.db}.replaced-{time.strftime('%Y%m%d-%H%M%S', time.localtime(now / 1000))}"
    name, number = start, 1
    while os.path.lexists(name):
        number += 1
        name = f"{start}-{number}"
    return name
