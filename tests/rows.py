"""Job rows for tests of the store and the supervisor, put in as `enqueue` would."""

from __future__ import annotations

import json
import os
from typing import Any

import apsw


def put(db: apsw.Connection, now: int = 1_000_000, **columns: Any) -> int:
    """Insert one job, queued and due at `now` (epoch ms) unless `columns` say otherwise; its id."""
    priority = int(columns.get("priority", 0))
    state = columns.get("state", "queued")
    row: dict[str, Any] = {
        "kind": "default",
        "tenant": "default",
        "band": 2,
        "priority": 0,
        "needs": "",
        "state": state,
        "reason": "enqueued",
        "changed_at": now,
        "command": json.dumps(["true"]),
        "cwd": "/",
        "path": os.environ.get("PATH"),
        "rank": now - priority * 60_000,
        "created_at": now,
        "accepted_at": now,
        "run_after": now,
        "ready_at": now if state == "queued" else None,
    } | columns
    if isinstance(row["command"], list):
        row["command"] = json.dumps(row["command"])
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    return int(db.execute(f"INSERT INTO jobs ({names}) VALUES ({values}) RETURNING id", row).get)


def refuse(db: apsw.Connection, reason: str, since: int = 1_000_000, **columns: Any) -> None:
    """What the supervisor writes when it refuses the head of a lane that there is."""
    row: dict[str, Any] = {"band": 2, "tenant": "default", "kind": "default", "needs": ""}
    row |= {"reason": reason, "since": since, "retry_at": since + 60_000} | columns
    names = ", ".join(row)
    db.execute(f"INSERT INTO lanes ({names}) VALUES ({', '.join(':' + name for name in row)})", row)


def states(db: apsw.Connection) -> dict[int, str]:
    return dict(db.execute("SELECT id, state FROM jobs ORDER BY id").fetchall())


def check_books(db: apsw.Connection) -> None:
    """The tally says what the rows say, every lane is known, and the file is sound."""
    counted = db.execute(
        "SELECT state, band, tenant, kind, needs, count(*) FROM jobs"
        " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"
    ).fetchall()
    assert db.execute("SELECT * FROM tally ORDER BY 1, 2, 3, 4, 5").fetchall() == counted
    spent = db.execute("SELECT budget, tenant, sum(amount), count(*) FROM spends GROUP BY 1, 2 ORDER BY 1, 2")
    assert db.execute("SELECT * FROM spent ORDER BY 1, 2").fetchall() == spent.fetchall()
    orphans = db.execute(
        "SELECT * FROM lanes l WHERE NOT EXISTS (SELECT 1 FROM tally t WHERE t.state = 'queued'"
        " AND t.band = l.band AND t.tenant = l.tenant AND t.kind = l.kind AND t.needs = l.needs)"
    ).fetchall()
    assert orphans == []
    last = db.execute(
        "SELECT j.id FROM jobs j WHERE j.state <>"
        " (SELECT to_state FROM events WHERE job_id = j.id ORDER BY id DESC LIMIT 1)"
    ).fetchall()
    assert last == []
    assert db.execute("PRAGMA integrity_check").get == "ok"
