"""Two hundred `clawq enqueue` at once: are all answered, and how late is the last?

And a reader that never lets go of its view of the database: does the supervisor go on, and does the log of
writes stay bounded once it is gone?
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

AT_ONCE = 200
BATCH = 20_000
MOST_WAL_MB = 80

TITLE = f"{AT_ONCE} producers at once, and a reader that does not let go"
CONFIG = "[limits]\nmax_queued = 1000000\nmax_queued_per_tenant = 1000000\n"


def run() -> list[Row]:
    rows = []
    figures = {}
    for name in ("clawq enqueue", "spoolctl add"):
        with measure.empty_home(CONFIG) as env:
            argv = [CLAWQ, "enqueue", "--", "true"]
            if name != "clawq enqueue":
                spoolctl = measure.program("spoolctl")
                if spoolctl is None:
                    rows.append(Row(name, measure.MISSING))
                    continue
                argv = [spoolctl, "add", "--db", f"{env['HOME']}/spool.db", "--", "true"]
            measure.whole_process(argv, env)
            figures[name] = _at_once(argv, env, measure.size(AT_ONCE, 10))
    for name, (taken, total, failed) in figures.items():
        p99 = measure.percentile(taken, 99)
        peer = figures.get("spoolctl add")
        ours = name == "clawq enqueue"
        good = None if not ours or peer is None else failed == 0 and total < peer[1]
        rows.append(
            Row(
                f"{name}: each, p99 {p99:.2f} s",
                *measure.milliseconds(taken),
                f"{failed} failed",
                "all answered, before spoolctl" if ours else "",
                good,
            )
        )
        rows.append(Row(f"{name}: all of them", f"{total:.2f} s"))
    return rows + _reader()


def _at_once(argv: list[str], env: dict[str, str], count: int) -> tuple[list[float], float, int]:
    """(seconds of each, seconds until the last, how many failed)."""
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    began = time.perf_counter()
    started = {}
    for _ in range(count):
        started[os.posix_spawn(argv[0], argv, env, file_actions=nowhere)] = time.perf_counter()
    taken, failed = [], 0
    while started:
        pid, status = os.waitpid(-1, 0)
        if pid in started:
            taken.append(time.perf_counter() - started.pop(pid))
            failed += status != 0
    return taken, time.perf_counter() - began, failed


def _reader() -> list[Row]:
    """Jobs run while somebody reads; the log of writes afterwards."""
    jobs = measure.size(BATCH, 500)
    with measure.empty_home(CONFIG) as env:
        lines = Path(env["HOME"]) / "lines"
        lines.write_text('{"command": ["true"], "hold": false, "delay": "1h"}\n' * jobs)
        measure.whole_process([CLAWQ, "enqueue", "--", "true"], env)
        with measure.supervisor(env):
            path = Path(env["CLAWQ_HOME"]) / "clawq.db"
            reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM jobs").fetchall()
            began = time.perf_counter()
            measure.whole_process([CLAWQ, "enqueue", "--wait", "--", "true"], env)
            waited = time.perf_counter() - began
            measure.whole_process([CLAWQ, "enqueue", "--batch", str(lines)], env)
            wal = Path(f"{path}-wal")
            largest = wal.stat().st_size
            reader.close()
            measure.whole_process([CLAWQ, "enqueue", "--wait", "--", "true"], env)
            measure.until(lambda: wal.stat().st_size < MOST_WAL_MB << 20)
            after = wal.stat().st_size
    return [
        Row("a job from enqueue to its end while somebody reads", f"{waited * 1000:.0f} ms"),
        Row(
            f"the log of writes after {jobs:,} jobs more, that reader still there",
            f"{largest / (1 << 20):.1f} MB",
        ),
        Row(
            "... and once it is gone",
            f"{after / (1 << 20):.1f} MB",
            "",
            "",
            f"< {MOST_WAL_MB} MB",
            after < MOST_WAL_MB << 20,
        ),
    ]


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
