"""Bringing an older database up to date: a backup first, then every step in one transaction."""

from __future__ import annotations

import os

import apsw

from clawq.store.connection import SCHEMA_VERSION, Immediate, sqlite_name

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "migrations")


def migrate(
    db: apsw.Connection, path: str, version: int, target: int = SCHEMA_VERSION, folder: str = FOLDER
) -> None:
    """Take the database at `path`, open as `db`, from schema `version` to `target`.

    ``folder`` holds one ``N.sql`` for each step from N - 1 to N. The backup is ``PATH.vVERSION.bak``, mode
    0600; one that is there already is older and stays. Of several processes at once the first one migrates.
    """
    back_up(db, f"{path}.v{version}.bak")
    with Immediate(db):
        current = int(db.pragma("user_version"))
        for number in range(current + 1, target + 1):
            with open(os.path.join(folder, f"{number}.sql"), encoding="utf-8") as file:
                db.execute(file.read())
            db.pragma("user_version", number)


def back_up(db: apsw.Connection, target: str) -> None:
    """Copy the database to `target` while others go on using it; a complete file appears, or none."""
    if os.path.exists(target):
        return
    draft = f"{target}.{os.getpid()}.new"
    os.close(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
    try:
        copy = apsw.Connection(sqlite_name(draft))
        try:
            with copy.backup("main", db, "main") as backup:
                while not backup.done:
                    backup.step(1_000)
            copy.pragma("journal_mode", "delete")
        finally:
            copy.close()
        os.rename(draft, target)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
