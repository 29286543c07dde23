"""What admission is decided from: the machine, who runs, who is next, and what is configured.

Plain values that the supervisor and the tests' simulator fill in alike. Times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from clawq.states import FIRST_MS, split

Lane = tuple[int, str, str, str]
"""(band, tenant, kind, needs as in the database)."""


@lru_cache(maxsize=1024)
def names(needs: str) -> tuple[str, ...]:
    """`split`, remembered: a pass asks for each job's several times."""
    return tuple(split(needs))


class Head(NamedTuple):
    """A lane's next job, with what its lane remembers.

    ``rank`` orders within a lane: when it was first due minus its priority, in ms. ``gated_at`` is the lane's
    last refusal by a pause, a gate or a cooldown; ``short_since`` is since when this very job was refused
    only for slots that others hold; ``bare`` is one without a command of its own, which runs its kind's.
    """

    job_id: int
    band: int
    tenant: str
    kind: str
    needs: str
    rank: int
    exclusive: str | None = None
    root_id: int | None = None
    ready_at: int = 0
    deadline_at: int | None = None
    last_start_at: int | None = None
    gated_at: int | None = None
    short_since: int | None = None
    bare: bool = False

    @property
    def is_child(self) -> bool:
        return self.root_id is not None

    @property
    def goes_first(self) -> bool:
        """Is it a child of what is under way?"""
        return self.rank < -FIRST_MS // 2

    @property
    def lane(self) -> Lane:
        return (self.band, self.tenant, self.kind, self.needs)

    @property
    def resources(self) -> tuple[str, ...]:
        return names(self.needs)

    @property
    def waited_since(self) -> int:
        """What its rise through the bands counts from."""
        return max(self.ready_at, self.last_start_at or 0, self.gated_at or 0)


class Running(NamedTuple):
    """A job under way, which holds its slots, or while it is ``waiting`` those that it keeps.

    ``ends_by`` is when its timeout or deadline ends it at the latest; ``procs`` and ``mb`` are what its tree
    was last seen to use, None before the first look. ``back_at`` is since when it has wanted its slots back.
    """

    job_id: int
    band: int
    tenant: str
    kind: str
    needs: str
    exclusive: str | None = None
    root_id: int | None = None
    started_at: int = 0
    ends_by: int | None = None
    procs: int | None = None
    mb: int | None = None
    waiting: bool = False
    back_at: int | None = None
    token: int = 0


class Host(NamedTuple):
    """The machine at the last look; None where it was not or cannot be measured."""

    user_procs: int | None = None
    free_mb: int | None = None
    pressure: int | None = None
    """0 normal, 1 warn, 2 critical."""
    free_disk_mb: int | None = None
    spawn_closed_until: int = 0
    ramp_left: int | None = None
    """How many more starts the ramp after a crash or a wake allows now; None when there is no ramp."""


class Resource(NamedTuple):
    """``keep``: a job that waits for others does not give its slot back."""

    limit: int
    min_free_mb: int | None = None
    keep: bool = False


class Budget(NamedTuple):
    """An amount in a sliding window. ``used`` and ``used_by`` are what it holds now, reserved or spent."""

    limit: int
    per_tenant: int | None
    used: int
    used_by: Mapping[str, int]
    frees_at: int | None = None
    """When the oldest entry leaves the window."""

    @property
    def most_for_one(self) -> int:
        """More than this can never be reserved at once."""
        return self.limit if self.per_tenant is None else min(self.limit, self.per_tenant)


class Cooldown(NamedTuple):
    """A resource that was asked to rest.

    Closed until ``until``, then open for one probe; once that has passed, for ``allowed`` more by now.
    """

    until: int
    probing: bool
    """The probe runs."""
    allowed: int
    """Starts that are still allowed now: 1 when a probe may start, more once it has passed."""


class Footprint(NamedTuple):
    """What a kind's process tree grows to: processes and MiB, the peaks of its recent attempts."""

    procs: int
    mb: int


UNMEASURED = Footprint(2, 0)
"""A kind that has not run yet: its shell and its program."""

GROWTH_MS = 60_000
"""A job counts with its kind's footprint for this long after its start, then with what it really uses."""


NO_LIMIT = 1 << 30


class Limits(NamedTuple):
    """The configuration as admission needs it. None switches a gate off."""

    max_running: int
    retry_after_ms: int
    resources: Mapping[str, Resource]
    tenant: Callable[[str], int]
    kind: Callable[[str, int], int | None]
    """What a job of this kind that came in this band may add to: jobs of the kind at once, None for any."""
    has_command: Callable[[str, int], bool] = lambda kind, band: True
    """Is there a command for a bare job of this kind that came in this band?"""
    weight: Callable[[str], float] = lambda tenant: 1.0
    max_running_per_workflow: int = NO_LIMIT
    max_waiting: int = NO_LIMIT
    """While so many jobs are in `clawq wait`, only children start."""
    max_user_procs: int | None = None
    min_free_mb: int | None = None
    max_pressure: int | None = None
    min_free_disk_mb: int | None = None
    paused: frozenset[tuple[str, str]] = frozenset()
    """(scope, name): ('all', ''), ('tenant', T), ('kind', K), ('resource', R) or ('band', number as text)."""
    band_slots: Mapping[int, int] | None = None
    """Whole slots of each band's share; None when no band has one."""
    age_boost_ms: int = 600_000
    reserve_after_ms: int = 300_000
    spends: Callable[[str, int], tuple[tuple[str, int], ...]] = lambda kind, band: ()
    """(budget, amount) that a job of this kind and band reserves at its start, in alphabetical order."""
    budgets: Mapping[str, Budget] = {}
    cooldowns: Mapping[str, Cooldown] = {}
    footprint: Callable[[str], Footprint] = lambda kind: UNMEASURED
    observing: bool = False
