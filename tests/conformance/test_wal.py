"""The log of writes stays small, whoever reads, and it is the supervisor that sees to it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import apsw
import pytest

from clawq.paths import Home
from clawq.store import wal
from clawq.store.connection import BUSY_MS, Immediate, open_db, open_readonly
from clawq.store.wal import Wal
from tests.rows import put

WRITES = 1_600
PAYLOAD = '"' + "x" * 6_000 + '"'
"""Two pages a job: with their index pages the writes below come to some 60 MB."""


def size(home: Home) -> int:
    return os.stat(home.db + "-wal").st_size


def write(db: apsw.Connection, count: int) -> None:
    for _ in range(count):
        with Immediate(db):
            put(db, payload=PAYLOAD)


@pytest.fixture
def owner(home: Home) -> Iterator[Wal]:
    db = open_db(home, owner=True)
    os.close(os.open(home.lock, os.O_CREAT, 0o600))  # and so it ticks
    yield Wal(db, home.db, lambda: db.set_busy_timeout(BUSY_MS))
    db.close()


@pytest.fixture
def producer(home: Home, owner: Wal) -> Iterator[apsw.Connection]:
    db = open_db(home)
    db.execute("PRAGMA synchronous=OFF")  # what is measured is not the disk
    yield db
    db.close()


def test_without_readers_it_never_grows(home: Home, owner: Wal, producer: apsw.Connection) -> None:
    largest = 0
    for turn in range(40):
        write(producer, WRITES // 40)
        owner.tend(turn)
        largest = max(largest, size(home))
    assert largest < wal.CUT_BYTES


def test_a_slow_reader_holds_it_up_only_as_long_as_it_reads(
    home: Home, owner: Wal, producer: apsw.Connection
) -> None:
    reader = open_readonly(home)
    assert reader is not None
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM jobs").fetchall()
    for turn in range(40):
        write(producer, WRITES // 40)
        owner.tend(turn)
    assert size(home) > 2 * wal.CUT_BYTES, "the reader held nothing up, so that this shows nothing"
    assert reader.execute("SELECT count(*) FROM jobs").get == 0
    reader.execute("ROLLBACK")
    owner.tend(2 * wal.CUT_AGAIN_MS)
    assert size(home) < wal.CUT_BYTES
    write(producer, 100)
    owner.tend(3 * wal.CUT_AGAIN_MS)
    assert size(home) < wal.CUT_BYTES
    assert producer.execute("SELECT count(*) FROM jobs").get == WRITES + 100


def test_readers_that_overlap_without_end_do_not_hold_it_up(
    home: Home, owner: Wal, producer: apsw.Connection
) -> None:
    readers: list[apsw.Connection] = []
    for turn in range(40):
        write(producer, WRITES // 40)
        reader = open_readonly(home)
        assert reader is not None
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchall()
        readers.append(reader)
        if len(readers) > 2:
            readers.pop(0).close()
        # Another turn comes before the next write: by then a reader sees all there is.
        owner.tend(turn * wal.CUT_AGAIN_MS)
    for reader in readers:
        reader.close()
    owner.tend(41 * wal.CUT_AGAIN_MS)
    assert size(home) < wal.CUT_BYTES


def test_a_producer_leaves_it_to_the_supervisor(home: Home, owner: Wal, producer: apsw.Connection) -> None:
    write(producer, 1_000)
    frames, folded = producer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    assert frames > 1_000
    assert folded == 0
    owner.tend(0)
    frames, folded = producer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    assert frames == folded


def test_and_does_it_itself_where_there_is_none(home: Home) -> None:
    db = open_db(home)
    db.execute("PRAGMA synchronous=OFF")
    write(db, 2_000)
    assert size(home) < wal.CUT_BYTES


def test_it_waits_for_nobody(home: Home, owner: Wal, producer: apsw.Connection) -> None:
    write(producer, 1_000)
    with Immediate(producer):
        put(producer)
        owner.tend(0)  # a writer is in the middle
    assert owner.db.pragma("busy_timeout") == 10_000


def test_the_last_one_leaves_nothing_behind(home: Home) -> None:
    db = open_db(home, owner=True)
    with Immediate(db):
        put(db)
    Wal(db, home.db, lambda: None).close()
    assert size(home) == 0
    db.close()


def test_a_cut_leaves_the_owner_as_patient_as_before(home: Home) -> None:
    db, other = open_db(home, owner=True), open_db(home)
    asked = []
    owner = Wal(db, home.db, lambda: db.set_busy_handler(lambda tries: bool(asked.append(tries))))
    owner.close()
    with Immediate(other), pytest.raises(apsw.BusyError):
        db.execute("BEGIN IMMEDIATE")
    assert asked == [0]
    db.close()
    other.close()
