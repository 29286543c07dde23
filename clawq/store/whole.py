"""Is all there that clawq made in its database? Asked when something went wrong that no code explains."""

from __future__ import annotations

import apsw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SEVERAL = 3
"""So many lost things are named."""
_FILLED = ("config", "meta", "states", "transitions")
"""Tables that are never empty."""
MEND = "`clawq restore FILE` takes a backup; nothing else mends it"


def missing(path: str) -> str | None:
    """What somebody has taken out of the database at `path`, in words; None when nothing, or unreadable."""
    from clawq.store.connection import memory_db, sqlite_name

    try:
        seen = apsw.Connection(sqlite_name(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            there = set(_parts(seen))
        finally:
            seen.close()
    except apsw.Error:
        return None
    lost = [part for part in _parts(memory_db()) if part not in there]
    if not lost:
        return None
    more = f" and {len(lost) - SEVERAL} more" if len(lost) > SEVERAL else ""
    return ", ".join(lost[:SEVERAL]) + more


def _parts(db: apsw.Connection) -> Iterator[str]:
    """Tables first. Texts of CREATE are not compared: one that was migrated has others."""
    tables = [
        name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    ]
    yield from (f"table {name}" for name in tables)
    for name in _FILLED:
        if name in tables and db.execute(f"SELECT EXISTS (SELECT 1 FROM {name})").get:
            yield f"the rows of {name}"
    others = "SELECT type, name FROM sqlite_schema WHERE type <> 'table' ORDER BY type, name"
    yield from (f"{kind} {name}" for kind, name in db.execute(others))
    for name in tables:
        for (column,) in db.execute("SELECT name FROM pragma_table_xinfo(?)", (name,)):
            yield f"column {name}.{column}"
