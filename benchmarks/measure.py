"""What the figures share: an empty queue, whole processes timed, medians with spread, one aligned table."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

BIN = Path(sys.executable).parent
CLAWQ = str(BIN / "clawq")
PEERS = Path(__file__).resolve().parent.parent / ".venv-peers"
"""Where `make bench` installs those neighbours that come from PyPI."""
MISSING = "not installed"
quick = False
"""Sizes that show that everything is measured, and say nothing of speed."""


def size(whole: int, small: int) -> int:
    """How many of something this run does."""
    return small if quick else whole


def program(name: str) -> str | None:
    """A neighbour's program, where it is installed."""
    own = PEERS / "bin" / name
    return str(own) if own.exists() else shutil.which(name)


class Row(NamedTuple):
    """One line of the table. ``ratio`` is to the figure's reference; ``good`` None: no target of ours."""

    what: str
    value: str
    spread: str = ""
    ratio: str = ""
    target: str = ""
    good: bool | None = None


def median(values: Sequence[float]) -> float:
    return percentile(values, 50)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` percent lie, between neighbours by proportion."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * share / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def milliseconds(values: Sequence[float]) -> tuple[str, str]:
    """Median and middle half of seconds, as text in ms."""
    return (
        f"{median(values) * 1000:.1f} ms",
        f"{percentile(values, 25) * 1000:.1f} to {percentile(values, 75) * 1000:.1f}",
    )


def rates(values: Sequence[float]) -> tuple[str, str]:
    """Median and range of jobs a second, as text."""
    return f"{median(values):,.0f} /s", f"{min(values):,.0f} to {max(values):,.0f}"


@cache
def run_folder() -> Path:
    """Where this run has its homes. It goes when the process ends, and nothing in it goes before.

    An ext4 without a journal does not give the inodes of deleted files out again for a while, and walks over
    them whenever a file is made near by: for minutes after thousands were deleted one costs 100 us instead
    of 7. It spreads the folders of its root over its groups of inodes, and those of a folder marked with
    `chattr +T`: each home has a group of its own, and none the one of /tmp.
    """
    usual = tempfile.gettempdir()
    places = [usual] if quick or "TMPDIR" in os.environ else ["/", "/var/tmp", usual]
    place = next((each for each in places if os.access(each, os.W_OK)), usual)
    folder = tempfile.mkdtemp(prefix="cq-bench-", dir=place)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if chattr := shutil.which("chattr"):
        subprocess.run([chattr, "+T", folder], capture_output=True)  # not every file system has groups
    return Path(folder)


def new_file_us(folder: Path) -> float:
    """What it costs to make one more empty file there, in microseconds: of many, the median."""
    took = []
    for number in range(size(200, 5)):
        began = time.perf_counter()
        os.close(os.open(folder / f"new.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        took.append(time.perf_counter() - began)
    return median(took) * 1e6


@contextmanager
def empty_home(config: str = "") -> Iterator[dict[str, str]]:
    """A queue of its own; yields the environment that names it. Its files stay until the run is over."""
    folder = Path(tempfile.mkdtemp(dir=run_folder()))
    try:
        home = folder / "q"
        home.mkdir(mode=0o700)
        if config:
            (home / "clawq.toml").write_text(config)
        # A bare environment, as cron would give: what a shell exports must not change the figures.
        yield {
            "CLAWQ_HOME": str(home),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "LC_ALL": "C",
        }
    finally:
        for database in home.glob("clawq.db*"):
            database.unlink(missing_ok=True)  # a few inodes, and sometimes a gigabyte


@contextmanager
def supervisor(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A live `clawq run` that is ready; ended, with its agents, on the way out."""
    log = Path(env["HOME"]) / "run.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [CLAWQ, "run"], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        sock = Path(env["CLAWQ_HOME"]) / "clawq.sock"
        deadline = time.monotonic() + 10
        while not sock.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"clawq run did not come up: {log.read_text()}")
            time.sleep(0.02)
        yield process
    finally:
        subprocess.run([CLAWQ, "stop", "--now"], env=env, capture_output=True)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def whole_process(argv: Sequence[str], env: dict[str, str]) -> float:
    """Seconds from spawn to collected end. A failing process ends the benchmark: its time means nothing."""
    nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], list(argv), env, file_actions=nowhere)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - began
    if status != 0:
        raise SystemExit(f"{' '.join(argv)} exited {os.waitstatus_to_exitcode(status)}")
    return took


def rusage(pid: int) -> tuple[float, float]:
    """(seconds of CPU, MiB resident) of a process so far. Linux only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / ticks, pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def wakeups(pid: int) -> int:
    """How often a process has gone to sleep by itself. Linux only."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches")))


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Poll it; a benchmark whose condition never comes says nothing."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("a benchmark waited in vain")
        time.sleep(0.01)


def markdown(title: str, rows: Sequence[Row]) -> str:
    """The same as a Markdown table."""
    lines = [f"### {title}", "", "| | median | spread | ratio | target | |", "|---|---|---|---|---|---|"]
    for row in rows:
        verdict = "" if row.good is None else "held" if row.good else "**missed**"
        cells = (row.what, row.value, row.spread, row.ratio, row.target, verdict)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def table(title: str, rows: Sequence[Row]) -> str:
    """The rows with aligned columns, ready to print."""
    cells = [("", "median", "spread", "ratio", "target", "")]
    for row in rows:
        verdict = "" if row.good is None else "held" if row.good else "MISSED"
        cells.append((row.what, row.value, row.spread, row.ratio, row.target, verdict))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = [title]
    for line in cells:
        texts = [
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(texts)).rstrip())
    return "\n".join(lines)
