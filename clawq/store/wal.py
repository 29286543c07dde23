"""Keeping the log of writes (`clawq.db-wal`) small: the supervisor's business, and no producer pays for it.

Folding it back never waits for anybody. As long as somebody reads from an old snapshot the log can only grow;
it is folded when that reader lets go, and a file that has grown large meanwhile is cut.
"""

from __future__ import annotations

import os

import apsw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FOLD_PAGES = 500
"""Pages (4 KiB) not yet in the database: from here on they are folded back."""
CUT_BYTES = 8 * 1024 * 1024
"""A log file larger than this is cut to nothing once it is folded."""
CUT_WAIT_MS = 50
"""Where readers overlap without end the log can never begin anew: for so long writers wait for the readers
that are there, while new ones already read from the database alone."""
CUT_AGAIN_MS = 5_000


class Wal:
    """The log of one open database, looked after by whoever holds `clawq.lock`.

    ``be_patient`` sets how this connection waits for locks, which a cut changes for its while. SQLite
    keeps no busy handler beside a timeout, so that it can only be set anew.
    """

    def __init__(self, db: apsw.Connection, path: str, be_patient: Callable[[], object]) -> None:
        self.db = db
        self.be_patient = be_patient
        self.path = path + "-wal"
        self.cut_after = 0

    def tend(self, mono: int) -> None:
        """Fold the log back when it has grown, and cut its file when that is large. `mono` is ms.

        Costs a microsecond when there is nothing to do. Raises what SQLite raises when the disk fails.
        """
        frames, folded = self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if frames - folded < FOLD_PAGES and not self._is_large():
            return
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if mono >= self.cut_after and self._is_large():
                self.cut_after = mono + CUT_AGAIN_MS
                self._cut(CUT_WAIT_MS)
        except (apsw.BusyError, apsw.LockedError):
            pass  # somebody else folds it, or reads: the next turn looks again

    def close(self) -> None:
        """At the end: every later opening is the quicker for it."""
        try:
            self._cut(CUT_WAIT_MS)
        except apsw.Error:
            pass  # it is all in the log

    def _is_large(self) -> bool:
        try:
            return os.stat(self.path).st_size > CUT_BYTES
        except FileNotFoundError:
            return False

    def _cut(self, wait_ms: int) -> None:
        self.db.set_busy_timeout(wait_ms)
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            self.be_patient()
