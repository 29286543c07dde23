"""`clawq events` as it is piped into other programs: complete, in order, and gone when nobody reads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawq import states as job
from clawq.paths import Home
from clawq.store import refusals
from clawq.store.connection import Immediate, open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.moves import put_in
from tests.rows import put
from tests.waiting import until

NOW = 1_900_000_000_000


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def following(fleet: Fleet, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`clawq events -f` into a file."""
    told = fleet.scratch / "told"
    with told.open("w") as out, told.with_suffix(".err").open("w") as err:
        process = subprocess.Popen(
            [*CLAWQ, "events", "-f", *words],
            stdout=out,
            stderr=err,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    try:
        yield process, told
    finally:
        process.kill()
        process.wait(10)


def test_a_queue_that_never_was_has_no_events(fleet: Fleet) -> None:
    done = fleet.clawq("events")
    assert (done.stdout, done.stderr) == ("", "")
    assert not os.path.exists(fleet.home.data)


def test_every_move_and_refusal_is_a_line(fleet: Fleet) -> None:
    fleet.configure("[limits]\nmax_queued = 1\n")
    job_id = fleet.enqueue("--", "true")
    fleet.clawq("enqueue", "--", "true", code=75)
    fleet.clawq("cancel", job_id)
    told = lines(fleet.clawq("events").stdout)
    assert [(row["job_id"], row["from"], row["to"], row["reason"]) for row in told] == [
        (job_id, "new", "queued", "enqueued"),
        (None, "new", "rejected", "queue_full"),
        (job_id, "queued", "cancelled", "cancelled"),
    ]
    for row in told:
        assert set(row) == {"at", "job_id", "kind", "tenant", "from", "to", "reason"}
        assert row["at"].endswith("Z")
        assert (row["kind"], row["tenant"]) == ("default", "default")


def test_since_and_limit(fleet: Fleet) -> None:
    db = open_db(fleet.home)
    for _ in range(150):
        put(db, NOW)
    db.close()
    fleet.enqueue("--", "true")
    assert len(lines(fleet.clawq("events").stdout)) == 100
    assert len(lines(fleet.clawq("events", "--limit", "120").stdout)) == 120
    assert fleet.clawq("events", "--limit", "0").stdout == ""
    assert len(lines(fleet.clawq("events", "--since", "1h").stdout)) == 151
    assert len(lines(fleet.clawq("events", "--since", "1h", "--limit", "2").stdout)) == 2
    assert "is not a duration" in fleet.clawq("events", "--since", "soon", code=2).stderr
    assert "is not a number" in fleet.clawq("events", "--limit", "-1", code=2).stderr


def test_following_misses_nothing_and_repeats_nothing(fleet: Fleet) -> None:
    with following(fleet) as (process, told):
        # It begins before there is a queue; jobs come, end and are pruned, and work is refused meanwhile.
        until(lambda: process.poll() is None and told.exists())
        db = open_db(fleet.home)
        for number in range(200):
            with Immediate(db):
                put_in(db, job.CANCELLED, NOW + number)
            refusals.count_refusals(db, {("queue_full", "qa", "acme"): 1}, NOW + number)
            if number % 50 == 10:
                fleet.clawq("prune", "--older-than", "0s")  # ended in the future: looked at, and none goes
            if number == 0:
                until(told.read_text, 20)  # it follows: what came before would be cut to the latest hundred
        done = lambda: len(told.read_text().splitlines()) >= 600  # noqa: E731 (said twice)
        until(done, 20)
        first = [row["job_id"] for row in lines(told.read_text()) if row["from"] == "queued"]
        with Immediate(db):
            db.execute("DELETE FROM jobs")
        last = put(db, NOW)
        until(lambda: f'"job_id": {last},' in told.read_text())
        db.close()
        rows = lines(told.read_text())
        assert first == list(range(1, 201))
        assert len(rows) == 601
        assert sum(row["to"] == "rejected" for row in rows) == 200


def test_following_begins_with_the_latest(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    fleet.enqueue("--", "true")
    with following(fleet, "--limit", "1") as (_, told):
        until(lambda: told.read_text().count("\n") == 1)
        fleet.clawq("cancel", 1)
        until(lambda: told.read_text().count("\n") == 2)
        assert [row["job_id"] for row in lines(told.read_text())] == [2, 1]


def test_it_goes_on_in_the_queue_that_was_restored(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    fleet.clawq("backup", fleet.scratch / "copy")
    with following(fleet) as (_, told):
        until(lambda: told.read_text().count("\n") == 1)
        fleet.clawq("restore", fleet.scratch / "copy")
        until(lambda: "restored" in told.with_suffix(".err").read_text())
        fleet.enqueue("--", "true")
        until(lambda: told.read_text().count("\n") == 2)
        assert [row["job_id"] for row in lines(told.read_text())] == [1, 2]


def test_a_reader_that_has_gone_ends_it_though_nothing_happens(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    process = subprocess.Popen(
        [*CLAWQ, "events", "-f"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(10) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_ctrl_c_ends_it_without_a_word(fleet: Fleet) -> None:
    fleet.enqueue("--", "true")
    with following(fleet) as (process, told):
        until(lambda: told.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
        assert told.with_suffix(".err").read_text() == ""


def test_a_million_rows_cost_what_a_thousand_do(fleet: Fleet) -> None:
    """Counted in steps of SQLite's machine, which no load of this computer changes."""
    from clawq.store import trail

    def steps(jobs: int) -> int:
        folder = fleet.scratch / str(jobs)
        os.environ["CLAWQ_HOME"] = str(folder)
        from clawq.paths import find_home

        db = open_db(find_home())
        with Immediate(db):
            for number in range(jobs):
                put(db, NOW + number)
        taken = [0]

        def tick() -> bool:
            taken[0] += 1
            return False

        db.set_progress_handler(tick, 10)
        list(trail.read(db, trail.back(db, 100), trail.here(db)))
        list(trail.read(db, trail.since(db, NOW + jobs - 100), trail.here(db)))
        db.close()
        shutil.rmtree(folder)
        return taken[0]

    assert steps(20_000) < 1.3 * steps(500)
