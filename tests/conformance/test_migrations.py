"""Every schema that was ever released opens today, and becomes exactly what a new database is."""

from __future__ import annotations

import os
import re

import apsw
import pytest

from clawq import states as job
from clawq.paths import Home
from clawq.store.connection import SCHEMA_VERSION, Immediate, build_schema, open_db, open_readonly
from tests.rows import check_books, states
from tests.schema_fixture import FOLDER, path_of

VERSIONS = range(1, SCHEMA_VERSION + 1)


def objects(db: apsw.Connection) -> dict[str, str]:
    found = db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {str(name): " ".join(re.sub(r"--.*", "", str(sql)).split()) for name, sql in found}


@pytest.fixture(params=VERSIONS)
def old_home(home: Home, request: pytest.FixtureRequest) -> Home:
    os.makedirs(home.data)
    db = apsw.Connection(home.db)
    db.pragma("journal_mode", "wal")
    db.execute(path_of(request.param).read_text(encoding="utf-8"))
    db.close()
    return home


def test_there_is_a_database_of_every_schema() -> None:
    assert {path.name for path in FOLDER.glob("schema-*.sql")} == {f"schema-{n}.sql" for n in VERSIONS}


def test_it_becomes_what_a_new_one_is(old_home: Home) -> None:
    new = apsw.Connection(":memory:")
    with Immediate(new):
        build_schema(new)
    db = open_db(old_home)
    assert db.pragma("user_version") == SCHEMA_VERSION
    changed = "python -m tests.schema_fixture writes it anew while its version is not released"
    assert objects(db) == objects(new), changed
    for table in ("states", "transitions"):
        rows = f"SELECT * FROM {table} ORDER BY 1, 2" if table == "transitions" else f"SELECT * FROM {table}"
        assert sorted(db.execute(rows).fetchall()) == sorted(new.execute(rows).fetchall()), changed
    check_books(db)


def test_its_jobs_are_all_there(old_home: Home) -> None:
    db = open_readonly(old_home)
    assert db is not None
    assert sorted(states(db).values()) == sorted(job.STATES)
    assert db.execute("SELECT count(*) FROM dedupe").get == len(job.STATES)
