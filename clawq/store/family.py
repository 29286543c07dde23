"""A job as the parent of others. Loaded by children only; functions expect the caller's transaction."""

from clawq import states as job
from clawq.errors import Refused
from clawq.store import sqlfile
from clawq.store.draft import Draft

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from clawq.store.intake import Intake

_SQL = sqlfile.load("family")


def find(db: "apsw.Connection", job_id: int, asked_by: int | None) -> "Parent | None":
    """The job with this number; ``asked_by`` is the token of whoever asks from inside it, else None."""
    rows: Any = db.execute(_SQL["parent"], (job_id,)).fetchall()
    return Parent(job_id, rows[0], asked_by) if rows else None


class Parent:
    """The job that a new one is to be a child of. ``asked_by`` is the token of its attempt that asks, or None
    when it is asked from outside; ``row`` is what must not have changed when the child is written."""

    __slots__ = (
        "asked_by",
        "band",
        "deadline_at",
        "depth",
        "id",
        "priority",
        "root_id",
        "row",
        "state",
        "tenant",
        "token",
    )

    def __init__(self, job_id: int, row: "Any", asked_by: int | None) -> None:
        self.id = job_id
        self.row = row
        self.asked_by = asked_by
        (
            self.tenant,
            self.band,
            self.priority,
            self.deadline_at,
            self.root_id,
            self.depth,
            self.token,
            self.state,
        ) = row

    def still_is(self, db: "apsw.Connection") -> bool:
        """Is it as it was seen, and still its agent's own?"""
        rows: Any = db.execute(_SQL["parent"], (self.id,)).fetchall()
        return bool(rows == [self.row])

    def twin_of(self, db: "apsw.Connection", draft: Draft) -> "tuple[int, str, int | None] | None":
        """(id, state, deadline_at) of what an earlier attempt asked for in the same words. It is got back.

        The n-th asked for finds the n-th; what was dead, expired or cancelled is asked for anew.
        """
        if self.asked_by is None:
            return None
        values = {"parent": self.id, "asked_by": self.asked_by, "twin": draft.twin, "kind": draft.asked_kind}
        values |= {"command": draft.command, "payload": draft.payload}
        rows: Any = db.execute(_SQL["twin"], values).fetchall()
        if not rows:
            return None
        self.get_back(db, rows[0][0])
        found: tuple[int, str, int | None] = rows[0]
        return found

    def get_back(self, db: "apsw.Connection", job_id: int) -> None:
        """A child that there was already is one of those that this attempt asked for."""
        if self.asked_by is not None:
            db.execute(_SQL["get_back"], {"asked_by": self.asked_by, "job_id": job_id, "parent": self.id})

    def refusal(self, db: "apsw.Connection", descendants: "dict[int, int]") -> Refused | None:
        """What keeps it from having one more child. ``descendants``: this transaction's counts by root."""
        limits: Any = db.execute(_SQL["limits"]).fetchall()[0]
        max_depth, most = limits
        root = self.root_id
        if root not in descendants:
            counted: Any = db.execute(_SQL["descendants"], (root,)).fetchall()
            descendants[root] = counted[0][0]
        if self.depth >= max_depth:
            where = "a root" if not self.depth else f"{self.depth} below its root"
            return Refused(
                "too_deep",
                f"job {self.id} is {where}, and at most {max_depth} below one is allowed",
                "let a job nearer to the root do it, or raise limits.max_depth in clawq.toml",
            )
        if descendants[root] >= most:
            return Refused(
                "too_many_descendants",
                f"job {root} has had {descendants[root]} jobs below it, of at most {most}",
                "let one of them do the rest, or raise limits.max_descendants in clawq.toml",
            )
        return None


def put_question(intake: "Intake", parent: Parent, text: str, now: int) -> int:
    """A question of this job's attempt to a person: a held job, which only ``max_held`` bounds; its number.

    Raises Refused (``held_full``).
    """
    frame = intake.frame(job.ASK, job.BANDS[parent.band], parent.tenant)
    asked = {"command": [job.ASK, text], "hold": True}
    draft = Draft(asked, job.ASK, parent.tenant, frame, "/", None, now, None, parent)
    held: Any = intake.db.execute(_SQL["held"]).fetchall()[0][0]
    if held >= frame.max_held:
        from clawq.store.refusals import no_place

        raise no_place(intake.db, draft, now, frame.max_queued, (0, 0, 0, held))
    return intake.insert(draft, job.HELD, now)
