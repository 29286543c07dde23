"""Bringing an older database up to date, one process at a time and with nobody working on it.

Whoever meets an older schema takes `clawq.lock`, which a supervisor holds as long as it runs. A supervisor
that runs is asked to stand aside: it hands its agents over, starts again as the newer program, and waits for
the lock like everybody else.
"""

from __future__ import annotations

import fcntl
import os
import time

import apsw

from clawq.errors import Busy
from clawq.paths import Home
from clawq.store import connection
from clawq.store.connection import Immediate

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")
STAND_ASIDE = "upgrade"
"""What a running supervisor is asked for, under the key 'stop'."""
PATIENCE_S = 10.0
ASK_AGAIN_S = 1.0
"""A second supervisor, of the older program, may have waited for the lock with --standby."""
LOOK_S = 0.02


def bring_up(db: apsw.Connection, home: Home, holds_lock: bool) -> None:
    """Have the open database at this program's schema when this returns, whoever brought it there.

    Raises Busy when a supervisor does not stand aside, or somebody else takes very long.
    """
    if holds_lock:
        migrate(db, home.db, version(db))
        return
    lock = os.open(home.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        give_up = time.monotonic() + PATIENCE_S
        ask_at = 0.0
        while version(db) < connection.SCHEMA_VERSION:
            now = time.monotonic()
            if _is_free(lock):
                migrate(db, home.db, version(db))
            elif now >= give_up:
                raise Busy(
                    f"{home.db} must be upgraded, and its supervisor does not stand aside",
                    "end it with `clawq stop` and start it again",
                )
            elif now >= ask_at:
                _ask_to_stand_aside(db)
                ask_at = time.monotonic() + ASK_AGAIN_S
            else:
                time.sleep(LOOK_S)
    finally:
        os.close(lock)


def version(db: apsw.Connection) -> int:
    return int(str(db.pragma("user_version")))


def _is_free(lock: int) -> bool:
    """Then it is ours from now on."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ask_to_stand_aside(db: apsw.Connection) -> None:
    """It looks at least each second. Any other request stands: that supervisor ends anyway."""
    with Immediate(db):
        db.execute("INSERT INTO meta VALUES ('stop', ?) ON CONFLICT DO NOTHING", (STAND_ASIDE,))


def migrate(
    db: apsw.Connection, path: str, version: int, target: int | None = None, folder: str = FOLDER
) -> None:
    """Take the database at `path`, open as `db`, from schema `version` to `target` (this program's own).

    The backup is ``PATH.vVERSION.bak``, mode 0600; one that is there already is older and stays. Of several
    processes at once the first one migrates.
    """
    back_up(db, f"{path}.v{version}.bak")
    take_steps(db, target, folder)


def take_steps(db: apsw.Connection, target: int | None = None, folder: str = FOLDER) -> None:
    """All steps in one transaction. ``folder`` holds one ``N.sql`` for each step from N - 1 to N."""
    with Immediate(db):
        goal = connection.SCHEMA_VERSION if target is None else target
        for number in range(version(db) + 1, goal + 1):
            with open(os.path.join(folder, f"{number}.sql"), encoding="utf-8") as file:
                db.execute(file.read())
            db.pragma("user_version", number)


def back_up(db: apsw.Connection, target: str) -> None:
    """Copy the database to `target` while others go on using it; a complete file appears, or none."""
    from clawq.store import copies

    if os.path.exists(target):
        return
    with copies.Draft(target) as draft:
        copies.copy(db, draft.name)
        draft.place(replace=True)
