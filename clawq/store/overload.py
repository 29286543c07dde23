"""What a kind that is full or busy does with one more job, when it does not just refuse or queue it.

``on_full`` answers the kind's own ``queue_cap`` and no other cap: the queue's and the tenant's always refuse,
unless the job takes the place of one that is dropped, for then it needs none. Everything here happens inside
the transaction that accepts the job.
"""

from clawq.store import sqlfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.store.draft import Draft

_SQL = sqlfile.load("overload")


def oldest(db: "apsw.Connection", draft: "Draft") -> "tuple[int, str] | None":
    """(id, state) of the job that would be dropped for this one."""
    found: Any = db.execute(_SQL["oldest"], {"kind": draft.kind, "tenant": draft.tenant}).fetchall()
    return found[0] if found else None


def drop(db: "apsw.Connection", job_id: int, now: int) -> None:
    """Cancel it, with reason ``dropped``."""
    db.execute(_SQL["drop"], {"job_id": job_id, "now": now})


def like_it(db: "apsw.Connection", draft: "Draft") -> "tuple[int, str, int | None] | None":
    """(id, state, deadline_at) of a waiting job that does what this one would."""
    values = {name: getattr(draft, name) for name in ("kind", "tenant", "same", "run_after", "hold", "needs")}
    values |= {name: getattr(draft, name) for name in ("command", "payload", "cwd", "env")}
    values["parent_id"] = None if draft.parent is None else draft.parent.id
    found: Any = db.execute(_SQL["same"], values).fetchall()
    return found[0] if found else None
