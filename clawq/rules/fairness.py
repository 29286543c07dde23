"""In which order the lanes' heads are asked.

Three kinds of fairness, each with its price:

* *Bands* are strict: critical before interactive before normal before bulk. A higher band can hold all the
  others back, so a head rises one band for each `age_boost` that it has waited, up to critical, and goes
  before those that are at home there; critical ones that have waited as long go before the others of theirs.
  The wait counts from the latest of its becoming ready, its lane's last refusal by a pause, a gate or a
  cooldown, and the last start of anything else in its band with the same needs. So a band that is being
  served does not rise, whoever's turn it is in it, and neither does a night's bulk that nobody could have
  started. (Tried: counting only the lane's own starts. A tenant with 50 kinds then passes everybody after ten
  minutes, and weights mean nothing where jobs are long.) The price: after a long wait bulk goes before chat.
* *Tenants* within a band take turns by weight (stride scheduling, Waldspurger and Weihl 1995, with the
  virtual time of Goyal's start-time fair queueing, 1996): a start moves its tenant's clock on by 1 / weight,
  and the tenant whose clock is furthest behind goes next. A tenant that comes back starts at the band's
  present, not in its own past, so idling earns nothing, and all of a tenant's kinds share one clock, so
  splitting work over kinds gains nothing. The price: a row for each tenant.
* *Within a turn* the oldest goes first, a point of priority counting as a minute, children before all.

A head that reserved its slots and was told by when it has them goes before the others that are asked in the
same band, or its own tenant's next start would put it behind those that it was promised to precede.

Where bands have shares of `max_running`, a band within its share goes before one that would borrow; a head
that has risen borrows nothing, or its wait would not be finite.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from clawq.rules.facts import Head
from clawq.states import BANDS

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
        if remainders[band] >= left:
            slots[band] += 1
    return slots


KEEPERS = (BANDS.index("critical"), BANDS.index("interactive"))
"""Bands for which one slot of their share stays free: their work cannot wait for somebody else's to end."""


def kept_for(
    slots: Mapping[int, int], used: Mapping[int, int], max_running: int, free: int = 1 << 30
) -> dict[int, int]:
    """Slots that stay free for jobs that came in a band: {band: 1}, while that leaves one for the others.

    A band keeps one while it uses less than its share. `used` counts by the band that a job came in. What
    these bands use of their shares is not left for the others: else, where their shares are all there is,
    each slot that is given back would be kept, and the others would wait for ever. The last `free` slot is
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
    """The tenants' clocks during one pass; `moved` and `presents` are what the pass changed."""

    def __init__(self, clocks: Clocks) -> None:
        self._at = dict(clocks.at)
        self._present = dict(clocks.present)
        self.moved: dict[Turn, float] = {}
        self.presents: dict[int, float] = {}

    def clock(self, turn: Turn) -> float:
        """Where this tenant stands in this band, never behind the band's present."""
        present = self._present.get(turn[0], 0.0)
        return max(self._at.get(turn, present), present)

    def charge(self, turn: Turn, weight: float, out_of_turn: bool = False) -> None:
        """A job of this tenant was started: the present moves to its clock, its clock past it.

        Out of turn, while another tenant's clock was behind, the present stays, or that one would lose the
        turn that it waits for. No clock is ever more than one job ahead of the present, so that nobody who
        comes finds a lead to make up for.
        """
        clock, band = self.clock(turn), turn[0]
        if not out_of_turn:
            self._present[band] = self.presents[band] = clock
        self._at[turn] = self.moved[turn] = max(clock, self._present.get(band, 0.0) + 1.0 / weight)


Group = tuple[int, str]
"""(band, needs): jobs that wait for the same."""
Key = tuple[bool, int, bool, int, float, int, int]
"""Smallest first: borrows, the band it is asked in, has no promise, since when its like wait if it has risen,
its tenant's clock, its rank, its number."""


class Order:
    """The heads of one pass that were not asked yet.

    ``borrows(band)``: is that band's share used up? ``promised``: numbers of the jobs that were told by when
    they have the slots that they reserved.
    """

    def __init__(
        self,
        now: int,
        heads: Iterable[Head],
        turns: Turns,
        age_boost_ms: int,
        promised: Mapping[int, int],
        borrows: Callable[[int], bool],
    ) -> None:
        self._now = now
        self._turns = turns
        self._age_boost_ms = age_boost_ms
        self._promised = promised
        self._borrows = borrows
        self._served: dict[Group, int] = {}
        self._longest: dict[Group, int] = {}
        found = list(heads)
        for head in found:
            group = (head.band, head.needs)
            if head.last_start_at is not None:
                self._served[group] = max(self._served.get(group, 0), head.last_start_at)
            self._longest[group] = min(self._longest.get(group, now), head.waited_since)
        self._heads = sorted((self._key(head), head) for head in found)
        self._next = 0

    def _key(self, head: Head) -> Key:
        group = (head.band, head.needs)
        served = self._served.get(group, 0)
        since = max(head.waited_since, served)
        risen = has_risen(self._now, since, self._age_boost_ms)
        promised = head.job_id in self._promised
        return (
            not risen and not promised and self._borrows(head.band),
            effective_band(self._now, head.band, since, self._age_boost_ms),
            not promised,
            max(self._longest[group], served) if risen else self._now,
            self._turns.clock((head.band, head.tenant)),
            head.rank,
            head.job_id,
        )

    def pop(self) -> Head | None:
        """The next to be asked."""
        if self._next == len(self._heads):
            return None
        self._next += 1
        return self._heads[self._next - 1][1]

    def add(self, head: Head) -> None:
        """The job behind one that left its lane."""
        insort(self._heads, (self._key(head), head), lo=self._next)

    def charge(self, head: Head, weight: float) -> None:
        """It was started: its tenant's turn is over, and what waits in its band for the same begins anew."""
        turn = (head.band, head.tenant)
        if self._next == len(self._heads):
            self._turns.charge(turn, weight)
            self._served[head.band, head.needs] = self._now
            return
        clock = self._turns.clock(turn)
        others, same = [], []
        for entry in self._heads[self._next :]:
            if entry[1].band == head.band:
                same.append(entry[1])
            else:
                others.append(entry)
        behind = any(self._turns.clock((each.band, each.tenant)) < clock for each in same)
        self._turns.charge(turn, weight, out_of_turn=behind)
        self._served[head.band, head.needs] = self._now
        self._heads = sorted([*others, *((self._key(each), each) for each in same)])
        self._next = 0
