"""`make bench`: every figure in one run, with clawq's targets beside them."""

from __future__ import annotations

import os
import platform
import sys

import apsw

from benchmarks import admission, dispatch, enqueue, measure, throughput

FIGURES = (enqueue, dispatch, admission, throughput)


def main() -> int:
    load = os.getloadavg()[0]
    print(
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, load {load:.2f}, "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"
    )
    if load > 0.5:
        print("The machine is busy; figures taken now say more about that than about clawq.")
    for figure in FIGURES:
        print(f"\n{measure.table(figure.TITLE, figure.run())}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
