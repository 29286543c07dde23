"""What does a supervisor cost that has nothing to do, and one with twenty agents to watch?"""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

SECONDS = 60
"""A minute, since once in each the machine is sampled and a row is written."""
AGENTS = 20
MOST_WAKEUPS, MOST_CPU, MOST_MB = 1.1, 0.1, 60
MOST_CPU_BUSY = 1.0

TITLE = "The supervisor at rest, and watching agents that sleep"
CONFIG = f"[limits]\nmax_running = {AGENTS}\n"


def run() -> list[Row]:
    if not sys.platform.startswith("linux"):
        return [Row("wake-ups, CPU and memory", "measured on Linux only")]
    with measure.empty_home(CONFIG) as env, measure.supervisor(env) as process:
        time.sleep(measure.size(3, 1))
        wakeups, cpu, mb = _watched(process.pid)
        rows = [
            Row("idle: wake-ups", f"{wakeups:.2f} /s", "", "", "<= 1 /s", wakeups <= MOST_WAKEUPS),
            Row("idle: CPU", f"{cpu:.2f} %", "", "", f"<= {MOST_CPU} % of a core", cpu <= MOST_CPU),
            Row("idle: memory", f"{mb:.0f} MB", "", "", f"<= {MOST_MB} MB", mb <= MOST_MB),
        ]
        for _ in range(AGENTS):
            subprocess.run([CLAWQ, "enqueue", "--", "sleep", "600"], env=env, check=True)
        measure.until(lambda: _running(env) == AGENTS)
        time.sleep(measure.size(8, 1))
        wakeups, cpu, mb = _watched(process.pid)
        rows += [
            Row(f"{AGENTS} agents: wake-ups", f"{wakeups:.2f} /s"),
            Row(
                f"{AGENTS} agents: CPU",
                f"{cpu:.2f} %",
                "",
                "",
                f"< {MOST_CPU_BUSY:g} % of a core",
                cpu < MOST_CPU_BUSY,
            ),
            Row(f"{AGENTS} agents: memory", f"{mb:.0f} MB"),
        ]
    return rows


def _watched(pid: int) -> tuple[float, float, float]:
    """(wake-ups a second, percent of a core, MiB) over a while."""
    seconds = measure.size(SECONDS, 1)
    woke, (cpu, _) = measure.wakeups(pid), measure.rusage(pid)
    began = time.perf_counter()
    time.sleep(seconds)
    took = time.perf_counter() - began
    cpu_after, mb = measure.rusage(pid)
    return (measure.wakeups(pid) - woke) / took, 100 * (cpu_after - cpu) / took, mb


def _running(env: dict[str, str]) -> int:
    done = subprocess.run(
        [CLAWQ, "list", "--state", "running", "--json"], env=env, capture_output=True, text=True
    )
    return done.stdout.count('"id"')


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
