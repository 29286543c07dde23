"""No named query may read a table that grows with the number of jobs: a pass costs lanes, not jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from clawq.store import sqlfile
from clawq.store.connection import Immediate, build_schema

FOLDER = Path(sqlfile.__file__).parent / "sql"
QUERIES = [
    pytest.param(sql, id=f"{file.stem}.{name}")
    for file in sorted(FOLDER.glob("*.sql"))
    for name, sql in sqlfile.load(file.stem).items()
]
BIG = {"jobs", "attempts", "events", "deferrals", "dedupe", "effects"}
# Partial indexes that hold only what is under way, and one whose first row is all that is asked for.
FEW = {"jobs_active", "attempts_live", "jobs_cancel", "jobs_due"}


@pytest.fixture(scope="module")
def db() -> Iterator[apsw.Connection]:
    made = apsw.Connection(":memory:")
    made.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # as the connections to a file are
    with Immediate(made):
        build_schema(made)
    yield made
    made.close()


def plan(db: apsw.Connection, sql: str) -> list[str]:
    bare = re.sub(r"--.*", "", sql)
    named = dict.fromkeys(re.findall(r"[:@$](\w+)", bare), 1)
    numbered = [int(number) for number in re.findall(r"\?(\d+)", bare)]
    places = max(numbered) if numbered else bare.count("?")
    rows = db.execute(f"EXPLAIN QUERY PLAN {sql}", named or (1,) * places or None).fetchall()
    return [str(row[3]) for row in rows]


def tables_by_alias(sql: str) -> dict[str, str]:
    found = re.findall(
        r"\b(?:FROM|JOIN|UPDATE|INTO|,)\s+(\w+)(?:\s+(?:AS\s+)?(\w+))?", re.sub(r"--.*", "", sql)
    )
    return {alias: table for table, alias in found if table in BIG} | {table: table for table in BIG}


def test_the_files_hold_queries() -> None:
    assert len(QUERIES) > 40
    assert {os.path.splitext(name)[1] for name in os.listdir(FOLDER)} == {".sql"}


@pytest.mark.parametrize("sql", QUERIES)
def test_no_query_reads_a_whole_big_table(db: apsw.Connection, sql: str) -> None:
    names = tables_by_alias(sql)
    for step in plan(db, sql):
        scanned = re.match(r"SCAN (\w+)(?:.*USING (?:COVERING )?INDEX (\w+))?", step)
        if scanned and scanned[1] in names:
            newest = scanned[2] is None and re.search(r"ORDER BY (?:\w+\.)?id DESC\s+LIMIT", sql)
            assert scanned[2] in FEW or newest, step


@pytest.mark.parametrize("sql", QUERIES)
def test_every_query_says_why_it_is_there(sql: str) -> None:
    assert sql.startswith("-- ")
    assert len(sql.partition("\n")[0]) > 12
