"""Every named query, as SQLite would carry it out: none walks a table that grows with the queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import apsw.ext
import pytest

import clawq.store
from clawq.store import sqlfile
from clawq.store.connection import Immediate, build_schema

SQL = Path(clawq.store.__file__).parent / "sql"
QUERIES = [(file.stem, name) for file in sorted(SQL.glob("*.sql")) for name in sqlfile.load(file.stem)]

GROWING = ("jobs", "attempts", "events", "deferrals", "dedupe")
ALIAS = re.compile(rf"\b({'|'.join(GROWING)})\s+(?:AS\s+)?(\w+)", re.IGNORECASE)
SCAN = re.compile(r"SCAN (\w+)(?: USING (?:COVERING )?INDEX (\w+))?$")

# Partial indexes that hold what runs, which is never more than the limits allow.
SMALL = {"jobs_active", "jobs_cancel", "jobs_exclusive", "attempts_live"}
# In the order of an index and with a LIMIT: as dear as what they return.
STOPPED = {("views", "newest"), ("offers", "newest"), ("views", "next_due"), ("trail", "move_back")}


@pytest.fixture(scope="module")
def empty() -> Iterator[apsw.Connection]:
    db = apsw.Connection(":memory:")
    with Immediate(db):
        build_schema(db)
    yield db
    db.close()


def steps(plan: apsw.ext.QueryPlan) -> Iterator[str]:
    yield plan.detail
    for sub in plan.sub or ():
        yield from steps(sub)


def test_there_are_queries() -> None:
    assert len(QUERIES) > 50


@pytest.mark.parametrize(("file", "name"), QUERIES)
def test_no_query_walks_a_growing_table(empty: apsw.Connection, file: str, name: str) -> None:
    sql = sqlfile.load(file)[name]
    plan = apsw.ext.query_info(empty, sql, explain_query_plan=True).query_plan
    assert plan is not None
    growing = {*GROWING, *(alias for _, alias in ALIAS.findall(sql))}
    for step in steps(plan):
        found = SCAN.match(step)
        if not found or found[1] not in growing or found[2] in SMALL:
            continue
        assert (file, name) in STOPPED, f"{step}\n{sql}"
        assert "LIMIT" in sql
        assert not any("TEMP B-TREE" in each for each in steps(plan)), sql


@pytest.mark.parametrize(("file", "name"), QUERIES)
def test_every_query_says_why_it_is_there(file: str, name: str) -> None:
    assert re.match(r"-- \S", sqlfile.load(file)[name]) is not None
