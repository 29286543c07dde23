"""`make pictures`: docs/pictures/*.svg, what the owner's commands show of a queue that really runs.

A supervisor works in a temporary home on agents that are small scripts; the commands draw on a terminal of
their own, and Rich makes a picture of what arrives there. Only the day that `clawq history` plots is made up,
since nobody waits a day for a picture.
"""

from __future__ import annotations

import fcntl
import io
import math
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import apsw
from rich.console import Console
from rich.text import Text

from demo.stage import CLAWQ, Stage

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
COLUMNS = 100
AGENTS = {
    "digest": "echo 12 notes read, digest written",
    "site-qa": 'echo "opening $2"; exec sleep 600',
    "report": "exec sleep 600",
    "summary": "echo a local model would run here",
    "reindex": "echo reindexed",
    "triage": "clawq fail --class rate_limit --retry-after 20m -m '429: rate limit reached'; exit 1",
    "import-prices": "echo reading prices.csv; echo \"KeyError: 'price' in line 17\" >&2; exit 1",
    "payout": "echo paying 3 invoices; kill -9 $$",
}


def main() -> int:
    home = Path(tempfile.gettempdir()).resolve() / "clawq-pictures"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o700)
    (home / "bin").mkdir()
    for name, script in AGENTS.items():
        path = home / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    text = (Path(__file__).parent / "pictures.toml").read_text()
    (home / "clawq.toml").write_text(text.replace("@HOME@", str(home)))
    stage = Stage(home)
    supervisor = subprocess.Popen(
        [str(CLAWQ), "run"], env=stage.env, cwd=home, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        busy(stage)
        troubled(stage, supervisor)
    finally:
        stage.quietly("stop", "--now")
        if supervisor.poll() is None:
            supervisor.terminate()
            supervisor.wait(20)
    shutil.rmtree(home, ignore_errors=True)
    for complaint in stage.complaints:
        print(f"pictures: {complaint}", file=sys.stderr)
    return 1 if stage.complaints else 0


def busy(stage: Stage) -> None:
    """A working day: two browsers in use, a provider at rest, a dead import, an answer to wait for."""

    def put(*words: str, expect: int = 0) -> None:
        answer = stage.quietly("enqueue", *words)
        stage.check(answer.exit_code == expect, f"enqueue {words[0]}: {answer.stderr}")

    for tenant in ("default", "acme"):
        put("digest", "--tenant", tenant, "--dedupe-key", "digest-{date}")
    put("import")
    put("payout")
    stage.until(lambda: counts(stage)["dead"] == 1 and counts(stage)["unknown"] == 1, 60, "the ends")
    put("triage")
    stage.until(lambda: stage.ask("status")["resources"]["anthropic"]["cooldown_s"], 30, "a rest")
    for page in ("", "docs", "blog", "pricing"):
        put("site.qa", "--payload", f'{{"url": "https://example.com/{page}"}}')
    for _ in range(2):
        put("report", "--tenant", "acme")
    put("summary")
    for _ in range(4):
        put("reindex")
    put("reindex", expect=75)
    put("report", "--hold", "--tenant", "acme")
    put("digest", "--delay", "6h")
    stage.until(
        lambda: counts(stage)["running"] == 4 and len(stage.ask("status")["waiting_on"]) >= 3, 60, "four"
    )
    time.sleep(4)  # ages of nothing but zeros would tell little
    summary = next(job["id"] for job in stage.ask("list") if job["kind"] == "summary")
    picture(stage, "status")
    picture(stage, "why", str(summary))
    picture(stage, "dead")


def counts(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = stage.ask("status")["counts"]
    return found


def troubled(stage: Stage, supervisor: subprocess.Popen[bytes]) -> None:
    """The supervisor is gone, a program too; and a day that never was, for the plots."""
    stage.quietly("stop", "--now")
    supervisor.wait(30)
    (stage.home / "bin" / "summary").unlink()
    picture(stage, "doctor")
    a_day(stage.home / "clawq.db")
    picture(stage, "history", columns=124)


def a_day(database: Path) -> None:
    """Samples and counts of a made-up day, in the tables that the supervisor fills each minute."""
    db = apsw.Connection(str(database))
    minute = int(time.time()) // 60
    with db:
        db.execute("DELETE FROM samples")
        for at in range(minute - 1435, minute + 1):
            hour = time.localtime(at * 60).tm_hour + time.localtime(at * 60).tm_min / 60
            load = max(0.0, math.sin((hour - 7) / 12 * math.pi)) + 0.8 * math.exp(-((hour - 14) ** 2) / 0.5)
            wave = math.sin(at / 7) + math.sin(at / 3.1)
            queued = max(0, round(14 * load + 2 * load * wave))
            db.execute(
                "INSERT OR REPLACE INTO samples VALUES (?,?,?,2,1,?,0,0,?,6,?,550,?,512,0,60000)",
                (
                    *(at, at * 60_000, queued, min(6, round(6 * load))),
                    *(round(queued * 22_000 + 4_000 * abs(wave)), round(90 + 190 * load + 9 * wave)),
                    round(9_000 - 4_200 * load - 250 * wave),
                ),
            )
        for hour in range(minute // 60 - 23, minute // 60 + 1):
            here = time.localtime(hour * 3600).tm_hour
            n = max(1, round(30 * max(0.0, math.sin((here - 6) / 13 * math.pi))))
            wait = 9_000 + (160_000 if 13 <= here <= 15 else 15_000 * (n // 10))
            for what, kind, word, count, total in (
                ("waited", "site.qa", "0", n, n * wait),
                ("worked", "site.qa", "0", n, n * (70_000 + 900 * n)),
                ("started", "site.qa", "", n, 0),
                ("ended", "site.qa", "succeeded", n, 0),
                ("deferred", "site.qa", "resource:browser", n // 3, 0),
                ("deferred", "summary", "low_memory", n // 9, 0),
            ):
                if count:
                    db.execute(
                        "INSERT OR REPLACE INTO counts VALUES (?,?,?,?,?,?)",
                        (hour, what, kind, word, count, total),
                    )
    db.close()


# ---------------------------------------------------------------- a terminal, and its picture


def picture(stage: Stage, *words: str, columns: int = COLUMNS) -> None:
    """docs/pictures/VERB.svg of what `clawq WORDS` draws."""
    drawn = on_a_terminal([str(CLAWQ), *words], stage, columns)
    console = Console(
        record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text(f"$ clawq {' '.join(words)}", style="bold"))
    for line in drawn.rstrip().splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True, highlight=False)
    console.print()  # the picture ends in the middle of its last line
    svg = console.export_svg(title="clawq", unique_id=f"clawq-{words[0]}")
    # Fonts come from where the page is shown, not from a server of somebody else's.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{words[0]}.svg").write_text("\n".join(map(str.rstrip, svg.splitlines())) + "\n")
    print(f"docs/pictures/{words[0]}.svg")


def on_a_terminal(command: list[str], stage: Stage, columns: int) -> str:
    """What the program writes to a terminal that is `columns` wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    env = stage.env | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
    env.pop("NO_COLOR", None)
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=stage.home)
    os.close(theirs)
    said = b""
    while True:
        try:
            if not select.select([ours], [], [], 30)[0]:
                running.kill()
            piece = os.read(ours, 65_536)
        except OSError:  # its other end is closed
            piece = b""
        if not piece:
            break
        said += piece
    running.wait(30)
    os.close(ours)
    return said.decode(errors="replace").replace("\r", "")


if __name__ == "__main__":
    sys.exit(main())
