"""[[schedules]] under a real supervisor: what was missed while none ran is made up for at its start."""

from __future__ import annotations

import time
from pathlib import Path

from clawq.paths import Home
from clawq.store import schedules
from clawq.store.connection import open_db
from tests.fleet import Fleet
from tests.waiting import until

CONFIG = """\
[kinds.digest]
command = ["sh", "-c", "pwd"]
[[schedules]]
cron = "* * * * *"
kind = "digest"
"""


def test_a_supervisor_makes_up_for_what_was_missed_and_runs_it(home: Home) -> None:
    fleet = Fleet(home)
    Path(home.data).mkdir(mode=0o700, exist_ok=True)
    Path(home.config).write_text(CONFIG)
    db = open_db(home)
    schedules.mark(db, "* * * * * digest", int(time.time() * 1000) - 600_000)
    db.close()
    with fleet.supervised():
        # One, or two where a minute ends meanwhile.
        jobs = until(
            lambda: (found := fleet.json("list")) and found[-1]["state"] == "succeeded" and found, 20
        )
        assert 1 <= len(jobs) <= 2
        assert {job["kind"] for job in jobs} == {"digest"}
        log = fleet.clawq("logs", jobs[-1]["id"]).stdout
        assert log.strip() == str(Path.home())


def test_a_kind_that_is_not_there_is_an_error_of_the_file(home: Home) -> None:
    fleet = Fleet(home)
    Path(home.data).mkdir(mode=0o700, exist_ok=True)
    Path(home.config).write_text(CONFIG.replace('kind = "digest"', 'kind = "digets"'))
    failed = fleet.clawq("config", "check", code=78)
    assert 'clawq.toml:5: schedules.kind: no kind "digets": did you mean digest?' in failed.stderr
