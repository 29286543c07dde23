"""What `clawq doctor` asks of the database besides what `status` does. A few seeks."""

from __future__ import annotations

from typing import Any, NamedTuple

import apsw

from clawq.store.sqlfile import load

SQL = load("checkup")


class Seen(NamedTuple):
    """``newest``: the latest moment written down, epoch ms."""

    newest: int
    tokens: frozenset[int]
    footprints: dict[str, float]
    supervisor_path: str | None


def look(db: apsw.Connection) -> Seen:
    path = db.execute(SQL["path"]).get
    footprints: list[tuple[Any, ...]] = db.execute(SQL["footprints"]).fetchall()
    return Seen(
        int(db.execute(SQL["newest"]).get),
        frozenset(token for (token,) in db.execute(SQL["live_tokens"])),
        {str(kind): float(procs) for kind, procs in footprints},
        None if path is None else str(path),
    )
