"""Databases as each released schema made them, as text: ``python -m tests.schema_fixture`` writes the newest.

It may be written anew as long as its version has not been released; from then on it is what a migration
starts from, and never changes.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from clawq import states as job
from clawq.store.connection import SCHEMA_VERSION, Immediate, build_schema
from tests.moves import put_in

FOLDER = Path(__file__).parent / "fixtures"


def path_of(version: int) -> Path:
    return FOLDER / f"schema-{version}.sql"


def dump(db: apsw.Connection) -> str:
    """A script that makes the same database: rows before triggers, so that these do nothing twice."""
    lines = ["-- Written by `python -m tests.schema_fixture`; never changed once its version is released."]
    lines += [f"PRAGMA {name}={db.pragma(name)};" for name in ("application_id", "user_version")]
    found = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    schema = [(str(kind), str(name), str(sql)) for kind, name, sql in found]
    lines += [f"{sql};" for kind, name, sql in schema if kind == "table" and name != "sqlite_sequence"]
    for kind, name, _ in schema:
        if kind != "table" or name == "sqlite_sequence":
            continue
        info = db.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (name,))
        columns = ", ".join(str(row[0]) for row in info)
        for row in db.execute(f"SELECT {columns} FROM {name}"):
            values = ", ".join(apsw.format_sql_value(value) for value in row)
            lines.append(f"INSERT INTO {name} ({columns}) VALUES ({values});")
    lines += [f"{sql};" for kind, _, sql in schema if kind in ("index", "trigger")]
    return "\n".join(lines) + "\n"


def fill(db: apsw.Connection) -> None:
    """A job in each state, and a row in most tables."""
    for number, state in enumerate(job.STATES):
        put_in(db, state, now=1_700_000_000_000 + number, dedupe_key=f"key-{state}", dedupe_scope="ever")
    for query in (
        "INSERT INTO dedupe SELECT tenant, kind, dedupe_key, id, 0 FROM jobs",
        "INSERT INTO deferrals SELECT id, 'low_memory', 3, 1, 2 FROM jobs WHERE state = 'queued'",
        "INSERT INTO pauses VALUES ('kind', 'digest', 1)",
        "INSERT INTO refusals VALUES ('queue_full', 'default', 'default', 2, 1)",
        "INSERT INTO meta VALUES ('last_token', 1700000000001)",
        "UPDATE meta SET value = 'fixture' WHERE key IN ('queue', 'life')",  # written anew, it is the same
    ):
        db.execute(query)


def main() -> None:
    db = apsw.Connection(":memory:")
    with Immediate(db):
        build_schema(db)
        fill(db)
    FOLDER.mkdir(exist_ok=True)
    path_of(SCHEMA_VERSION).write_text(dump(db), encoding="utf-8")


if __name__ == "__main__":
    main()
