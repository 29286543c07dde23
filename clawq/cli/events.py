"""`clawq events`: every move of a job and every refusal, a JSON object a line, as they happen if need be."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections import deque
from collections.abc import Iterator
from typing import Annotated

import apsw
import typer

from clawq import desk, when
from clawq.cli import params, words
from clawq.paths import Home, find_home
from clawq.store import trail
from clawq.store.connection import BUSY_MS, LOOKING_BUSY_MS, open_readonly, storage_errors
from clawq.store.trail import Mark
from clawq.store.views import Row

LATEST = 100
"""Lines without --limit and --since."""
LOOK_MS = 200


def events(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as things happen.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DURATION", help="Begin this long ago.")
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="Only the latest so many; default 100.")
    ] = None,
    as_json: params.AsJson = False,
) -> int:
    """Print every move and refusal, a JSON object a line. Without --since the latest."""
    moment = None if since is None else desk.now_ms() - when.duration(since)
    most = None if limit is None else words.number(limit, "--limit", 0)
    if most is None and since is None:
        most = LATEST
    # Whoever follows has time, and would not come back by itself.
    reader = Reader(find_home(), moment, most, BUSY_MS if follow else LOOKING_BUSY_MS)
    try:
        _print(reader.new(), flush=follow)
        while follow:
            _rest()
            _print(reader.new(), flush=True)
    finally:
        reader.close()
    return 0


class Reader:
    """Reads on where it stopped. Opens the queue once there is one, and again when a new file took its place.

    ``moment`` (epoch ms) and ``most`` say where it begins; None for all that there is. Waits ``busy_ms`` for
    whoever locks the queue.
    """

    def __init__(self, home: Home, moment: int | None, most: int | None, busy_ms: int) -> None:
        self._home = home
        self._busy_ms = busy_ms
        self._moment, self._most = moment, most
        self._db: apsw.Connection | None = None
        self._seen: os.stat_result | None = None
        self._version: object = None
        self._life = ""
        self._mark: Mark | None = None

    def new(self) -> Iterator[Row]:
        """What came since the last call."""
        with storage_errors(self._home.db):
            rows = self._begin()
        # What the reader of our lines does while we wait for it is no error of the disk.
        while True:
            with storage_errors(self._home.db):
                row = next(rows, None)
            if row is None:
                return
            yield row

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = self._version = None

    def _begin(self) -> Iterator[Row]:
        db = self._open()
        if db is None:
            return iter(())
        version = db.pragma("data_version")
        if version == self._version:
            return iter(())
        self._version = version
        was, (self._life, began) = self._life, trail.life(db)
        if was and was != self._life:
            words.note("a backup was restored: what follows happened since")
            self._mark = began
        to = trail.here(db)
        first, self._most, mark = self._most, None, self._mark
        if mark is None:
            mark = Mark() if self._moment is None else trail.since(db, self._moment)
            if first is not None:
                mark = Mark(*map(max, mark, trail.back(db, first)))
        self._mark = to
        rows = trail.read(db, mark, to)
        return rows if first is None else iter(deque(rows, maxlen=first))

    def _open(self) -> apsw.Connection | None:
        try:
            there = os.stat(self._home.db)
        except FileNotFoundError:
            there = None
        if self._db is not None and (there is None or (self._seen and os.path.samestat(there, self._seen))):
            return self._db
        self.close()
        self._db, self._seen = open_readonly(self._home, self._busy_ms), there
        if self._db is None:
            # Nothing has happened yet; whatever comes is new.
            self._moment = self._most = None
        return self._db


def _print(rows: Iterator[Row], flush: bool) -> None:
    for row in rows:
        words.write_json(row)
        if flush:
            sys.stdout.flush()


def _rest() -> None:
    """Until it is worth looking again. Raises BrokenPipeError when nobody reads us any more."""
    poll = select.poll()
    try:
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            poll.register(sys.stdout.fileno(), 0)  # only what nobody has to ask for: the other end is gone
    except (OSError, ValueError):
        pass
    if poll.poll(LOOK_MS):
        raise BrokenPipeError
