"""`make bench`: every figure in one run, with its neighbours and clawq's targets beside them.

    python -m benchmarks [--quick] [NAME ...]      only these figures: startup batch dispatch admission
                                                   throughput depth prune idle contention

Writes benchmarks/RESULTS.md when everything was measured at its full size.
"""

from __future__ import annotations

import datetime
import importlib
import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

import apsw

from benchmarks import measure

NAMES = ("startup", "batch", "dispatch", "admission", "throughput", "depth", "prune", "idle", "contention")
NEIGHBOURS = ("tsp", "nq", "parallel", "xargs", "spoolctl", "huey_consumer")
FROM_PYPI = ("spoolctl", "huey")
RESULTS = Path(__file__).with_name("RESULTS.md")
BUSY = 0.5
"""A load above this makes the figures say more about the machine than about clawq."""


def main(words: list[str]) -> int:
    measure.quick = "--quick" in words
    names = [word for word in words if not word.startswith("-")] or list(NAMES)
    for name in names:
        if name not in NAMES:
            print(f"benchmarks: no figure {name!r}: one of {', '.join(NAMES)}", file=sys.stderr)
            return 2
    if not measure.quick:
        _install_neighbours()
    print(machine())
    text = []
    for name in names:
        load = os.getloadavg()[0]
        figure = importlib.import_module(f"benchmarks.{name}")
        rows = figure.run()
        noise = f"load {load:.1f} before, {os.getloadavg()[0]:.1f} after"
        if load > BUSY:
            noise += ": a busy machine, take the ratios only"
        print(f"\n{measure.table(figure.TITLE, rows)}\n  ({noise})", flush=True)
        text.append(f"{measure.markdown(figure.TITLE, rows)}\n\n({noise})\n")
    if names == list(NAMES) and not measure.quick:
        RESULTS.write_text(_page(text))
        print(f"\nwritten to {RESULTS}")
    return 0


def machine() -> str:
    """What this was measured on."""
    versions = ", ".join(f"{name} {_version(name)}" for name in NEIGHBOURS)
    return (
        f"{platform.system()} {platform.release()}, {_processor()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()} ({versions})"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")


def _version(name: str) -> str:
    program = measure.program(name)
    if program is None:
        return "missing"
    if name == "huey_consumer":
        ask = [str(measure.PEERS / "bin" / "python"), "-c", "import huey; print(huey.__version__)"]
    else:
        ask = [program, "-V" if name == "tsp" else "--version"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=20)
    except OSError:
        return "there"
    words = (done.stdout or "there").splitlines()[0].split()
    return next(
        (word.strip(",") for word in words if word[:1].isdigit() or word[:2] in ("v1", "v0")), "there"
    )


def _install_neighbours() -> None:
    """Into a folder of their own, once; without a network they are missing, and the tables say so."""
    if (measure.PEERS / "bin" / "spoolctl").exists():
        return
    print(f"installing {' and '.join(FROM_PYPI)} into {measure.PEERS}", file=sys.stderr)
    venv.create(measure.PEERS, with_pip=True)
    pip = [str(measure.PEERS / "bin" / "python"), "-m", "pip", "install", "--quiet", *FROM_PYPI]
    subprocess.run([*pip, "--disable-pip-version-check"], stderr=subprocess.DEVNULL)


def _page(tables: list[str]) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return f"""# What was measured

Written by `make bench` on {today}.
{machine()}.

Medians; the spread is the middle half, of rates the range. Ratios are to the figure's own reference, taken in
the same run. [docs/performance.md](../docs/performance.md) says what stands behind them.

""" + "\n".join(tables)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
