"""The reference for `clawq enqueue`: the same database, one job row, one durable transaction."""

import os
import sys
import time

import apsw

db = apsw.Connection(sys.argv[1])
db.set_busy_timeout(10_000)
# As clawq does: the last one out does not fold the WAL back.
db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
db.execute("PRAGMA synchronous=FULL")
db.execute("BEGIN IMMEDIATE")
db.execute(
    "INSERT INTO jobs (kind, tenant, band, priority, needs, state, changed_at, command, cwd, rank,"
    " created_at, accepted_at, run_after, ready_at)"
    " VALUES ('default', 'default', 2, 0, '', 'queued', ?1, '[\"true\"]', ?2, ?1, ?1, ?1, ?1, ?1)",
    (time.time_ns() // 1_000_000, os.getcwd()),
)
db.execute("COMMIT")
