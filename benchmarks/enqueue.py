"""What does one `clawq enqueue` in a crontab cost, as a whole process?"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import measure
from benchmarks.measure import CLAWQ, Row

ROUNDS = 60
TARGET = 1.3
"""At most so many times the bare script."""

TITLE = "clawq enqueue, the whole process, no supervisor (taken in turns, after a warm-up)"


def run() -> list[Row]:
    bare_script = str(Path(__file__).with_name("bare_insert.py"))
    with measure.empty_home() as env:
        database = str(Path(env["CLAWQ_HOME"]) / "clawq.db")
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "bare": [sys.executable, bare_script, database],
            "clawq": [CLAWQ, "enqueue", "--", "true"],
        }
        measure.whole_process(commands["clawq"], env)  # makes the database
        for _ in range(3):
            for command in commands.values():
                measure.whole_process(command, env)
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                taken[name].append(measure.whole_process(command, env))
    ratio = measure.median(taken["clawq"]) / measure.median(taken["bare"])
    python = measure.median(taken["python"]) / measure.median(taken["bare"])
    return [
        Row("python -c pass", *measure.milliseconds(taken["python"]), f"{python:.2f} x"),
        Row("bare script: same database, one row", *measure.milliseconds(taken["bare"]), "1"),
        Row(
            "clawq enqueue -- true",
            *measure.milliseconds(taken["clawq"]),
            f"{ratio:.2f} x",
            f"<= {TARGET} x",
            ratio <= TARGET,
        ),
    ]


if __name__ == "__main__":
    print(measure.table(TITLE, run()))
