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
    rows = dicts(db.execute(SQL["outcomes"], (sqlfile.id_list(job_ids),)))
    return {row["job_id"]: row for row in rows}


def document(db: apsw.Connection, job_ids: list[int]) -> str:
    """The JSON array of ``clawq wait --json``, an object for each job: job_id, kind, state, outcome (of the
    last attempt), exit_code, error, error_class and result.
    """
    return str(db.execute(SQL["document"], (sqlfile.id_list(job_ids),)).get)
