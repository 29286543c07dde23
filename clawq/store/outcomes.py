"""How jobs have ended, and what they left behind: for whoever waits."""

from __future__ import annotations

from clawq.store import sqlfile
from clawq.store.connection import dicts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

SQL = sqlfile.load("outcomes")


def outcomes(db: apsw.Connection, job_ids: list[int]) -> dict[int, dict[str, Any]]:
    """{id: {job_id, state, exit_code, error, error_class, result}}; ``result`` is JSON text or None.

    Ids that do not exist are left out.
    """
    wanted = f"[{','.join(map(str, job_ids))}]"
    return {row["job_id"]: row for row in dicts(db.execute(SQL["outcomes"], (wanted,)))}
