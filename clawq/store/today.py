"""What has happened since midnight: jobs that ended, by kind, and what was put off, by reason."""

from __future__ import annotations

from clawq.store import counts, sqlfile
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

_SQL = sqlfile.load("today")

Row = dict[str, "Any"]


def today(db: apsw.Connection | None, midnight: int) -> tuple[list[Row], list[Row]]:
    """([{kind, state, count}], [{reason, count}]), the most first. `midnight` in epoch ms; counts are kept by
    the hour, so that where midnight is not a whole hour of UTC some of the evening before is among them.

    Costs rows of counts, not jobs; whole only while a supervisor keeps counting.
    """
    if db is None:
        return [], []
    ended: dict[tuple[str, str], int] = {}
    deferred: dict[str, int] = {}
    for row in dicts(db.execute(_SQL["counted"], {"hour": midnight // counts.HOUR_MS})):
        if row["what"] == "ended":
            state, _ = counts.state_and_reason(row["word"])
            _add(ended, (row["kind"], state), row["n"])
        else:
            _add(deferred, row["word"], row["n"])
    after = int(db.execute(counts.SQL["counted_to"]).get)
    for row in dicts(db.execute(_SQL["lately"], {"after": after, "since": midnight})):
        _add(ended, (row["kind"], row["state"]), row["n"])
    return (
        [{"kind": kind, "state": state, "count": n} for (kind, state), n in _most_first(ended)],
        [{"reason": reason, "count": n} for reason, n in _most_first(deferred)],
    )


def _add(counted: dict[Any, int], key: object, n: int) -> None:
    counted[key] = counted.get(key, 0) + n


def _most_first(counted: dict[Any, int]) -> list[tuple[Any, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))
