"""Real `clawq enqueue` processes for acceptance tests: a fresh interpreter each, in any environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apsw

from clawq.paths import Home

ROOT = Path(__file__).parents[1]
# What a console script does, without depending on how the package was installed.
LAUNCHER = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from clawq.__main__ import main; sys.exit(main())"
CLAWQ = [sys.executable, "-c", LAUNCHER]

Word = str | bytes


def clawq(
    *words: Word,
    code: int | None = 0,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: bytes | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one command line; `env` replaces the whole environment; `code` None takes any exit code."""
    done = subprocess.run(
        [*CLAWQ, *words], input=stdin, capture_output=True, env=env, cwd=cwd, timeout=60, check=False
    )
    told = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert code is None or told.returncode == code, (words, told.returncode, told.stdout, told.stderr)
    return told


def answer(*words: Word, code: int = 0, **more: Any) -> dict[str, Any]:
    """The object that --json prints."""
    split = words.index("--") if "--" in words else len(words)
    done = clawq(*words[:split], "--json", *words[split:], code=code, **more)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def start(*words: Word, **more: Any) -> subprocess.Popen[bytes]:
    """As clawq(), without waiting for it."""
    return subprocess.Popen([*CLAWQ, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def at_once(lines: Sequence[Sequence[Word]], **more: Any) -> list[subprocess.CompletedProcess[bytes]]:
    """All of them together, each a process."""
    running = [start(*words, **more) for words in lines]
    done = []
    for process in running:
        out, err = process.communicate(timeout=120)
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


def rows(home: Home, query: str, *values: Any) -> list[Any]:
    """What the database says."""
    db = apsw.Connection(home.db, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(10_000)
        return list(db.execute(query, values).fetchall())
    finally:
        db.close()


def configure(home: Home, text: str) -> None:
    """Write clawq.toml."""
    os.makedirs(os.path.dirname(home.config), exist_ok=True)
    Path(home.config).write_text(text)
