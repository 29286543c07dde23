"""An open queue as producers meet it, for tests of the store: ``take`` is a whole transaction."""

from __future__ import annotations

import json
from typing import Any

import apsw
import pytest

from clawq import options
from clawq.errors import Refused
from clawq.store.connection import Immediate, build_schema
from clawq.store.draft import Draft, Taken
from clawq.store.intake import Intake
from tests.rows import put

NOW = 1_900_000_000_000
SECOND = 1_000
MINUTE = 60_000


class Desk:
    """One connection and its intake."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self.intake = Intake(db)

    @classmethod
    def in_memory(cls) -> Desk:
        db = apsw.Connection(":memory:")
        db.execute("PRAGMA foreign_keys=ON")
        with Immediate(db):
            build_schema(db)
        return cls(db)

    def configure(self, **sections: Any) -> None:
        """Merge into the compiled body that is in force."""
        body = json.loads(str(self.db.execute("SELECT body FROM config").get))
        for section, values in sections.items():
            body[section] = body[section] | values if isinstance(values, dict) else values
        self.db.execute("UPDATE config SET body = ?, changed_at = changed_at + 1", (json.dumps(body),))

    def draft(self, now: int = NOW, **given: Any) -> Draft:
        self.intake.stamp()
        asked = options.read({"command": ["true"]} | given, now)
        kind = str(asked.get("kind", "default"))
        tenant = str(asked.get("tenant", "default"))
        frame = self.intake.frame(kind, given.get("band"), tenant)
        assert frame.known
        draft = Draft(asked, kind, tenant, frame, "/work", "/bin", now)
        if frame.on_busy == "degrade":
            lighter = self.intake.frame(frame.degrade_to, given.get("band"), tenant)
            draft.lighter = Draft(asked, frame.degrade_to, tenant, lighter, "/work", "/bin", now, kind)
        return draft

    def take(self, now: int = NOW, ticking: bool = False, **given: Any) -> Taken:
        draft = self.draft(now, **given)
        with Immediate(self.db):
            assert self.intake.begin()
            return self.intake.take(draft, now, ticking)

    def refusal(self, now: int = NOW, ticking: bool = False, **given: Any) -> Refused:
        with pytest.raises(Refused) as refused:
            self.take(now, ticking, **given)
        return refused.value

    def forecast(self, now: int = NOW, **given: Any) -> bool:
        """Whether such a job would be admitted; it is looked at and not kept."""
        draft = self.draft(now, **given)
        self.db.execute("BEGIN IMMEDIATE")
        try:
            assert self.intake.begin()
            return self.intake.take(draft, now, True).outcome == "admitted"
        finally:
            self.db.execute("ROLLBACK")

    def row(self, job_id: int) -> dict[str, Any]:
        cursor = self.db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,))
        names = [name for name, _ in cursor.get_description()]
        return dict(zip(names, next(cursor), strict=True))

    def move(self, job_id: int, state: str, now: int = NOW, **columns: Any) -> None:
        """Through the states as the supervisor would, with a token where one is due."""
        token = job_id if state in ("starting", "running", "waiting") else None
        ended = now if state in ("succeeded", "dead", "expired", "cancelled") else None
        self.db.execute(
            "UPDATE jobs SET state = ?, reason = 'x', changed_at = ?, token = ?, ended_at = ?,"
            " tries = tries + (?1 = 'starting') WHERE id = ?",
            (state, now, token, ended, job_id),
        )

    def run(self, job_id: int) -> None:
        self.move(job_id, "starting")
        self.move(job_id, "running")

    def ran(self, every_ms: int, count: int, took_ms: int = 0, now: int = NOW, **columns: Any) -> None:
        """As many jobs have run, the last of them begun `every_ms` ago, each before it as much earlier."""
        for number in range(count):
            job_id = put(self.db, now - 3_600_000, **columns)
            self.move(job_id, "cancelled")
            at = now - number * every_ms - every_ms
            self.db.execute(
                "INSERT INTO attempts (token, job_id, number, claimed_at, ended_at, outcome, boot_id,"
                " lease_ms, lease_until, grace_ms, timeout_ms, heartbeat, log)"
                " VALUES (?, ?, 1, ?, ?, 'succeeded', 'b', 1, 1, 1, 0, 'process', 'l')",
                (job_id, job_id, at, at + took_ms),
            )
