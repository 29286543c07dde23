"""Whose child a new job is, and what a job may not ask for. Loaded by children only."""

from clawq.errors import LeaseLost, NoSuchJob, Refused, UsageError, WrongState
from clawq.states import BANDS, DEFAULT_KIND, ENDED
from clawq.store import family

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clawq.store.family import Parent
    from clawq.store.intake import Intake


def parent_of(intake: "Intake", asked: "dict[str, Any]", me: "tuple[int, int] | None") -> "Parent":
    """The parent of a job with these options, whose tenant becomes ``asked``'s; ``me`` as of job.whoami().

    Raises LeaseLost, NoSuchJob, WrongState, Refused (``not_allowed``) and UsageError.
    """
    if me is None and "parent" not in asked:
        raise UsageError("--on-parent-end without a parent", "give --parent too")
    job_id, token = (asked["parent"], None) if me is None else me
    parent = intake.parents.get(job_id) or family.find(intake.db, job_id, token)
    if me is not None:
        if parent is None or parent.token != token:
            raise LeaseLost(job_id)
        _stay_inside(intake, parent, asked)
    elif parent is None:
        raise NoSuchJob(job_id)
    elif parent.state in ENDED and asked.get("on_parent_end") == "cancel":
        raise WrongState(job_id, parent.state, "the parent of what ends with it", "not ended")
    elif asked.get("tenant", parent.tenant) != parent.tenant:
        raise UsageError(
            f"--tenant {asked['tenant']!r:.80}", f"a child has its parent's, {parent.tenant!r:.80}"
        )
    intake.parents[job_id] = parent
    asked["tenant"] = parent.tenant
    return parent


def _stay_inside(intake: "Intake", parent: "Parent", asked: "dict[str, Any]") -> None:
    own = BANDS[parent.band]
    what = ""
    if asked.get("parent", parent.id) != parent.id:
        what = f"make a child of job {asked['parent']}"
    elif asked.get("tenant", parent.tenant) != parent.tenant:
        what = f"work for another tenant than its own, {parent.tenant!r:.80}"
    elif BANDS.index(asked.get("band", own)) < parent.band:
        what = f"ask for band {asked['band']}, above its own, {own}"
    if what:
        refused = Refused(
            "not_allowed", f"job {parent.id} cannot {what}", "that is for a person, outside of a job"
        )
        kind = asked.get("kind")
        refused.whose = (kind if kind in intake.kinds() else DEFAULT_KIND, parent.tenant)
        raise refused
