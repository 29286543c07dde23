"""How much is kept of what has ended: jobs with their events and logs, by age and by room.

A sweep goes in small steps, so that nobody waits for it: a supervisor takes one at a time between its turns,
`clawq prune` takes all of them. Jobs that have not ended lose nothing, nor do their logs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import apsw

from clawq.host import logs
from clawq.paths import Home
from clawq.settings import Limits
from clawq.store import jobs, retention

_MB = 1 << 20


class Sweep:
    """One look at everything, and what came of it.

    `before` (epoch ms) is the age: what ended earlier goes. `batch` is how many jobs or logs one step
    handles. `dry` counts and changes nothing.
    """

    def __init__(
        self,
        db: apsw.Connection,
        home: Home,
        limits: Limits,
        now: int,
        before: int | None = None,
        batch: int = 100,
        dry: bool = False,
    ) -> None:
        self.db = db
        self.home = home
        self.now = now
        self.before = now - limits.retention_ms if before is None else before
        self.most_bytes = limits.retention_mb * _MB
        self.batch = batch
        self.dry = dry
        self.jobs = 0
        """Too old, with their logs."""
        self.crowded_jobs = 0
        """The oldest of a database that is too large. Of a dry run 0: only the doing tells."""
        self.orphans = 0
        """Logs that belong to no attempt, and are too old."""
        self.crowded_logs = 0
        """The oldest of logs that are too large together, besides those that go with their jobs."""
        self.log_bytes = 0
        """Of all logs that stay; known at the end."""
        self.too_large_by = 0
        """Bytes by which the database was too large."""
        self.failure: OSError | None = None
        """Why a log could not be deleted."""

    def steps(self) -> Iterator[None]:
        """Take them one by one. Raises what the store raises."""
        yield from self._old_jobs()
        yield from self._large_database()
        yield from self._all_logs()
        yield from self._large_logs()

    def _old_jobs(self) -> Iterator[None]:
        if self.dry:
            self.jobs = jobs.count_prunable(self.db, self.before)
            return
        while True:
            ids, names = jobs.prunable(self.db, self.before, self.batch)
            if not ids:
                return
            # The files first: a crash between the two leaves rows, which the next sweep finds again.
            self._delete(names)
            self.jobs += jobs.prune(self.db, ids, self.before)
            yield

    def _large_database(self) -> Iterator[None]:
        self.too_large_by = max(0, retention.room(self.db) - self.most_bytes)
        while not self.dry and retention.room(self.db) > self.most_bytes:
            ids = [job_id for _, job_id in retention.oldest(self.db, retention.BEGINNING, self.batch)]
            if not ids:
                return
            self._delete(retention.logs(self.db, ids))
            gone = jobs.prune(self.db, ids, self.now + 1)
            self.crowded_jobs += gone
            if not gone:
                return  # retried meanwhile, or of a clock that was ahead
            yield

    def _all_logs(self) -> Iterator[None]:
        try:
            with os.scandir(self.home.logs) as entries:
                found: list[tuple[int, os.DirEntry[str]]] = []
                for entry in entries:
                    whose = logs.whose(entry.name)
                    if whose is not None:
                        found.append((whose[0], entry))
                    if len(found) >= self.batch:
                        self._weigh(found)
                        found = []
                        yield
                self._weigh(found)
        except FileNotFoundError:
            return

    def _weigh(self, found: list[tuple[int, os.DirEntry[str]]]) -> None:
        ids = sorted({job_id for job_id, _ in found})
        known = set(retention.logs(self.db, ids))
        # What only would go for its age is still there, and makes room all the same.
        going = retention.ended_before(self.db, ids, self.before) if self.dry else set()
        for job_id, entry in found:
            try:
                seen = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if not stat.S_ISREG(seen.st_mode):
                continue
            if entry.name not in known and seen.st_mtime_ns // 1_000_000 < self.before:
                self.orphans += 1
                if not self.dry:
                    self._delete([entry.name])
            elif job_id not in going:
                self.log_bytes += seen.st_size

    def _large_logs(self) -> Iterator[None]:
        mark = retention.mark(self.db)
        if mark[0] > self.now:
            mark = retention.BEGINNING  # set by a clock that was ahead
        while self.log_bytes > self.most_bytes:
            oldest = retention.oldest(self.db, mark, self.batch)
            if not oldest:
                return
            for mark in oldest:
                if self.dry and mark[0] < self.before:
                    continue
                for name in retention.logs(self.db, [mark[1]]):
                    path = os.path.join(self.home.logs, name)
                    try:
                        size = os.lstat(path).st_size
                    except OSError:
                        continue
                    self.crowded_logs += 1
                    self.log_bytes -= size
                    if not self.dry:
                        self._delete([name])
                if self.log_bytes <= self.most_bytes:
                    break
            if not self.dry:
                retention.set_mark(self.db, mark)
            yield

    def _delete(self, names: list[str]) -> None:
        for name in names:
            try:
                os.unlink(os.path.join(self.home.logs, name))
            except FileNotFoundError:
                pass
            except OSError as error:
                self.failure = error
