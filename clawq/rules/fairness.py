"""In which order the lanes' heads are asked.

Three kinds of fairness, each with its price:

* *Bands* are strict: critical before interactive before normal before bulk. A higher band can hold all the
  others back, so a head rises one band for each `age_boost` that it has waited, up to critical, and every
  wait is finite. The wait counts from the latest of its becoming ready, its lane's last start and its last
  refusal by a pause, a gate or a cooldown: a lane that is being served does not rise, and neither does a
  night's bulk that nobody could have started. The price: after a long wait bulk goes before fresh chat.
* *Tenants* within a band take turns by weight (stride scheduling, Waldspurger and Weihl 1995): a start moves
  its tenant's clock on by 1 / weight, and the tenant whose clock is furthest behind goes next. A tenant that
  comes back starts at the band's present, not in its own past, so idling earns nothing, and all of a tenant's
  kinds share one clock, so splitting work over kinds gains nothing. The price: a row for each tenant.
* *Within a lane* the oldest goes first, a point of priority counting as a minute, children before all.

Where bands have shares of `max_running`, a band within its share goes before one that would borrow; a head
that has risen borrows nothing, or its wait would not be finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clawq.job import BANDS

Turn = tuple[int, str]
"""(band, tenant)."""


class Clocks(NamedTuple):
    """Where each tenant's turn stands. ``at``: the tenant's clock in a band; ``present``: the band's own."""

    at: Mapping[Turn, float]
    present: Mapping[int, float]


def effective_band(now: int, band: int, waited_since: int, age_boost_ms: int) -> int:
    """The band in which a head is asked: one higher for each `age_boost_ms` of waiting, at most critical."""
    if age_boost_ms <= 0:
        return band
    return max(0, band - max(0, now - waited_since) // age_boost_ms)


def has_risen(now: int, waited_since: int, age_boost_ms: int) -> bool:
    """Has a head waited for a boost? One of critical too, which has no higher band to be asked in."""
    return age_boost_ms > 0 and now - waited_since >= age_boost_ms


def share_slots(shares: Mapping[int, float], max_running: int) -> dict[int, int]:
    """Whole slots for each band with a share, in percent of `max_running`, by largest remainder.

    What the shares leave over takes part; ties go to the larger share, then to the higher band (Hamilton's
    method). In millionths, since percents need not be whole and a tie must be one.
    """
    exact = {band: max_running * round(share * 10_000) for band, share in shares.items()}
    slots = {band: value // 1_000_000 for band, value in exact.items()}
    remainders = {band: value % 1_000_000 for band, value in exact.items()}
    others, left = divmod(max(0, max_running * 1_000_000 - sum(exact.values())), 1_000_000)
    spare = max_running - sum(slots.values()) - others
    by_remainder = sorted(shares, key=lambda band: (-remainders[band], -shares[band], band))
    for band in by_remainder[: max(0, spare)]:
        if remainders[band] >= left and remainders[band]:
            slots[band] += 1
    return slots


KEEPERS = (BANDS.index("critical"), BANDS.index("interactive"))
"""Bands for which one slot of their share stays free: their work cannot wait for somebody else's to end."""


def kept_for(
    slots: Mapping[int, int], used: Mapping[int, int], max_running: int, free: int = 1 << 30
) -> dict[int, int]:
    """Slots that stay free for jobs that came in a band: {band: 1}, while that leaves one for the others.

    A band keeps one while it uses less than its share. `used` counts by the band that a job came in. What
    these bands use of their shares is not left for the others: else, where their shares are all there is, each
    slot that is given back would be kept, and the others would wait for ever. The last `free` slot is
    critical's: kept for both at once it would be of use to neither.
    """
    room = max_running - 1 - sum(min(used.get(band, 0), slots.get(band, 0)) for band in KEEPERS)
    kept: dict[int, int] = {}
    for band in KEEPERS:
        if min(room, free) > len(kept) and used.get(band, 0) < slots.get(band, 0):
            kept[band] = 1
    return kept


NO_CLOCKS = Clocks({}, {})


class Turns:
    """The tenants' clocks during one pass; `moved` is what the pass changed."""

    def __init__(self, clocks: Clocks) -> None:
        self._at = dict(clocks.at)
        self._present = dict(clocks.present)
        self.moved: dict[Turn, float] = {}
        self.presents: dict[int, float] = {}

    def clock(self, turn: Turn) -> float:
        """Where this tenant stands in this band, never behind the band's present."""
        present = self._present.get(turn[0], 0.0)
        return max(self._at.get(turn, present), present)

    def charge(self, turn: Turn, weight: float) -> None:
        """A job of this tenant was started: the present moves to its clock, its clock past it."""
        clock = self.clock(turn)
        self._present[turn[0]] = self.presents[turn[0]] = clock
        self._at[turn] = self.moved[turn] = clock + 1.0 / weight


def asking_key(
    borrows: bool, band: int, clock: float, tenant: str, rank: int, job_id: int
) -> tuple[bool, int, float, str, int, int]:
    """Heads are asked smallest key first.

    ``borrows``: its band's share is used up and it has not risen; ``band`` is the effective one.
    """
    return (borrows, band, clock, tenant, rank, job_id)
