"""How far each of ``[[schedules]]`` has come, by its name; times are epoch ms.

Functions take an open connection; those that write are a transaction of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

import apsw

from clawq.store.connection import Immediate
from clawq.store.sqlfile import load

SQL = load("schedules")


def marks(db: apsw.Connection) -> dict[str, int]:
    """{name: the last slot that was dealt with}."""
    return {str(name): int(at) for name, at in db.execute(SQL["marks"])}


def mark(db: apsw.Connection, name: str, at: int) -> None:
    """All of its slots up to `at` are dealt with."""
    with Immediate(db):
        db.execute(SQL["mark"], {"name": name, "at": at})


def forget(db: apsw.Connection, names: Iterable[str]) -> None:
    """They are not configured any more."""
    with Immediate(db):
        for name in names:
            db.execute(SQL["forget"], {"name": name})
