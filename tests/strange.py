"""`clawq run` on a strange machine: ``python -m tests.strange CLOCK BUSY_MS TAKEN``.

CLOCK is a file with the ms by which the wall clock is wrong, read anew at each look; BUSY_MS is how long a
locked database is waited for; where the log of job TAKEN's first attempt should be there is a folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from clawq.host import instance, logs
from clawq.paths import find_home
from clawq.supervisor import loop, state, voice


def main(clock: str, busy_ms: str, taken: str) -> int:
    def wrong() -> int:
        return state.wall_ms() + int(Path(clock).read_text())

    loop.wall_ms = wrong  # type: ignore[attr-defined]
    loop.BUSY_MS = int(busy_ms)  # type: ignore[attr-defined]
    home = find_home()
    name_of = logs.name_of

    def named(job_id: int, number: int, token: int) -> str:
        name = name_of(job_id, number, token)
        if (job_id, number) == (int(taken), 1):
            os.makedirs(os.path.join(home.logs, name))
        return name

    logs.name_of = named
    os.makedirs(home.data, mode=0o700, exist_ok=True)
    held = instance.acquire(home.lock)
    assert held is not None
    return loop.Supervisor(home, held, voice.say_on_stderr).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
