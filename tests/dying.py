"""`clawq` that dies by kill -9 at a named point. Usage: python -m tests.dying POINT COMMAND ARG..."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from clawq import backups
from clawq.__main__ import main as clawq
from clawq.host import wait_file
from clawq.store import connection, copies, merge, migrate
from tests.crashing import die, die_at_commit, dying


def patch(owner: Any, name: str, before: bool) -> None:
    setattr(owner, name, dying(before, getattr(owner, name)))


class DyingCount:
    """A number of pages: the one asked for `at` last kills."""

    def __init__(self, at: int, pages: int) -> None:
        self.left, self.pages = at, pages

    def __index__(self) -> int:
        self.left -= 1
        if not self.left:
            die()
        return self.pages


def die_copying(at: int) -> None:
    copies.PAGES = DyingCount(at, 10)  # type: ignore[assignment]


def die_writing_over() -> None:
    inner = copies.describe

    def describe(db: Any) -> copies.Content:
        content = inner(db)
        if db.pragma("user_version") and db.execute("SELECT count(*) FROM pauses WHERE scope = 'all'").get:
            die_copying(3)
        return content

    copies.describe = describe


BACKUP: dict[str, Callable[[], None]] = {
    "before the copy": lambda: patch(copies, "copy", True),
    "in the middle of the copy": lambda: die_copying(3),
    "before it is checked": lambda: patch(copies, "check", True),
    "before it gets its name": lambda: patch(copies.Draft, "place", True),
    "once it has its name": lambda: patch(copies.Draft, "place", False),
}
RESTORE: dict[str, Callable[[], None]] = {
    "before the backup is copied": lambda: patch(copies, "copy", True),
    "once the backup is copied": lambda: patch(backups, "_open_current", True),
    "before the former database is kept": lambda: patch(backups, "_keep", True),
    "once the former database is kept": lambda: patch(backups, "_keep", False),
    "once the two are merged": lambda: patch(merge, "merge", False),
    "once all is settled": lambda: patch(merge, "settle", False),
    "in the middle of writing over": die_writing_over,
    "once it is in place": lambda: patch(backups, "Restored", True),
}
UPGRADE: dict[str, Callable[[], None]] = {
    "before the backup of an upgrade": lambda: patch(migrate, "back_up", True),
    "once there is a backup of an upgrade": lambda: patch(migrate, "back_up", False),
    "before an upgrade is committed": lambda: patch(connection.Immediate, "__exit__", True),
}
# Of `clawq wait` inside a job, which commits twice: that it waits, and that it wants its slots back.
WAIT_BEGINS: dict[str, Callable[[], None]] = {
    "before it holds its lock": lambda: patch(wait_file, "hold", True),
    "once it holds its lock": lambda: patch(wait_file, "hold", False),
    "before it is committed that it waits": lambda: die_at_commit(1, True),
    "once it is committed that it waits": lambda: die_at_commit(1, False),
}
WAIT_ENDS: dict[str, Callable[[], None]] = {
    "before it asks for its slots": lambda: die_at_commit(2, True),
    "once it has asked for its slots": lambda: die_at_commit(2, False),
    "once it has its slots": lambda: patch(wait_file, "let_go", True),
}
POINTS = BACKUP | RESTORE | UPGRADE | WAIT_BEGINS | WAIT_ENDS


def main(point: str, *words: str) -> int:
    POINTS[point]()
    return clawq(words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
