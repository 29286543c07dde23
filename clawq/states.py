"""What a job is: its states, which may follow which, and the words used for an attempt's end.

Plain strings and tuples on purpose: ``clawq enqueue`` imports this, and ``enum`` alone
would cost it three milliseconds.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEDULED = "scheduled"
QUEUED = "queued"
HELD = "held"
STARTING = "starting"
RUNNING = "running"
WAITING = "waiting"
UNKNOWN = "unknown"
SUCCEEDED = "succeeded"
DEAD = "dead"
EXPIRED = "expired"
CANCELLED = "cancelled"

STATES = (
    SCHEDULED,
    QUEUED,
    HELD,
    STARTING,
    RUNNING,
    WAITING,
    UNKNOWN,
    SUCCEEDED,
    DEAD,
    EXPIRED,
    CANCELLED,
)
PENDING = (SCHEDULED, QUEUED, HELD)
"""Accepted and not started: what the queue's caps count."""
ACTIVE = (STARTING, RUNNING, WAITING)
"""Has an attempt under way and a token."""
ENDED = (SUCCEEDED, DEAD, EXPIRED, CANCELLED)
SETTLED = (*ENDED, UNKNOWN)
"""Nothing more happens by itself."""

NEW = "new"
"""Where a job comes from before it has a state; only in TRANSITIONS and events."""

TRANSITIONS = {
    NEW: (SCHEDULED, QUEUED, HELD),
    SCHEDULED: (QUEUED, CANCELLED, EXPIRED, DEAD),
    QUEUED: (STARTING, SCHEDULED, CANCELLED, EXPIRED, DEAD),
    HELD: (QUEUED, SCHEDULED, SUCCEEDED, CANCELLED, EXPIRED),
    STARTING: (RUNNING, QUEUED, SCHEDULED, CANCELLED, DEAD),
    RUNNING: (WAITING, SUCCEEDED, SCHEDULED, QUEUED, DEAD, UNKNOWN, CANCELLED),
    WAITING: (RUNNING, SUCCEEDED, SCHEDULED, QUEUED, DEAD, UNKNOWN, CANCELLED),
    UNKNOWN: (SUCCEEDED, DEAD, QUEUED, SCHEDULED, CANCELLED),
    SUCCEEDED: (),
    DEAD: (QUEUED,),
    EXPIRED: (QUEUED,),
    CANCELLED: (QUEUED,),
}
"""state -> states that may follow it. The database holds the same table and refuses others."""

BANDS = ("critical", "interactive", "normal", "bulk")
"""In the order in which they are served; a band is stored as its index here."""

OUTCOMES = (
    "succeeded",
    "failed",
    "timed_out",
    "stalled",
    "lost",
    "rate_limited",
    "over_footprint",
    "cancelled",
    "never_started",
)
"""How an attempt ended."""

TOLD_CLASSES = ("transient", "permanent", "rate_limit")
"""What an agent, a result file or clawq.toml may call a failure; the other classes clawq finds itself."""
ERROR_CLASSES = (*TOLD_CLASSES, "timeout", "stalled", "lost")

EFFECT_SCOPES = ("job", "tenant")
"""Whose the key of a side effect is."""

DEFAULT_KIND = "default"
ASK = "ask"
"""The kind of a question to a person; nobody can configure it."""
DEFAULT_TENANT = "default"

PRIORITY_POINT_MS = 60_000
"""A point of priority is worth a minute of waiting."""
FIRST_MS = 1_000_000_000_000_000
"""So much less is the rank of a child while its parent is under way: it goes before all others."""


def split(needs: str) -> "list[str]":
    """The resource names in a `needs` column, as the database joins them: sorted, by commas."""
    return needs.split(",") if needs else []


def whoami(environ: "Mapping[str, str]") -> "tuple[int, int] | None":
    """(job id, token) of the job whose agent runs this; None outside a job."""
    job_id, token = environ.get("CLAWQ_JOB_ID", ""), environ.get("CLAWQ_TOKEN", "")
    if not (_is_number(job_id) and _is_number(token)):
        return None
    return int(job_id), int(token)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
