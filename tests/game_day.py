"""Game day, simulated: a provider slows down under mixed tenants, and comes back.

`python -m tests.game_day` prints it as a table, tests/unit/test_game_day.py says what it has to show. The
rules are the real ones: admission, backoff with its jitter, cooldown with probe and ramp. What the door does
is as small as can be: a kind's cap refuses, and chat that may not wait expires after five seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from clawq.rules import classify, retry
from clawq.rules.admission import Decision
from clawq.rules.classify import End
from clawq.rules.fairness import share_slots
from tests.simulator import MINUTE, SECOND, Job, Simulator, limits

SLOW_FROM, RESTORED_AT, LAST_ARRIVAL, ROW = 20 * MINUTE, 60 * MINUTE, 100 * MINUTE, 10 * MINUTE
SLOWER = 6
BEARS = 3
MET_LIMIT, FAILED = 0.9, 0.1
"""While it is slow: of its calls, those turned away when it has more than it bears, and those that break."""
PROVIDER = "provider"
PROVIDER_SLOTS = 8
FIRST_REST, LONGEST_REST = 30 * SECOND, 6 * 60 * MINUTE
CHAT_WAITS = 5 * SECOND
RATE_LIMITED = End("rate_limited", "rate_limit", None, None, charged=False, own_word=True, error="429")
BROKEN = classify.by_exit_code(1)


class Kind(NamedTuple):
    """``every`` is the mean time between two arrivals, ``cap`` how many may wait, ``most`` how many may run:
    together those with long jobs leave a slot of the provider to chat."""

    name: str
    band: int
    tenants: tuple[str, ...]
    needs: str
    length: int
    every: int
    cap: int
    most: int


KINDS = (
    Kind("chat", 1, ("acme", "beta"), PROVIDER, 5 * SECOND, 15 * SECOND, 1_000, 12),
    Kind("agent", 2, ("acme", "acme", "beta"), PROVIDER, MINUTE, 30 * SECOND, 30, 4),
    Kind("digest", 3, ("ops",), PROVIDER, 2 * MINUTE, MINUTE, 20, 3),
    Kind("local", 2, ("beta", "ops"), "", 30 * SECOND, 20 * SECOND, 30, 4),
)


@dataclass(slots=True)
class Row:
    """What happened in ten minutes. ``burst`` and ``retry_burst``: most starts in any ten seconds that hold
    the provider, and of these those that were tried before."""

    came: int = 0
    refused: int = 0
    chat_came: int = 0
    chat_answered: int = 0
    chat_expired: int = 0
    chat_longest: int = 0
    attempts: int = 0
    retries: int = 0
    rests: int = 0
    bulk_waits: int = 0
    all_wait: int = 0
    burst: int = 0
    retry_burst: int = 0


@dataclass(slots=True)
class GameDay:
    seed: int = 1
    naive: bool = False
    """Without backoff and without rests, to see what these are good for."""
    rows: dict[int, Row] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    sim: Simulator = field(init=False)
    _random: Random = field(init=False)
    _endings: dict[int, End] = field(default_factory=dict)
    _rests_in_a_row: int = 0

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        rules = limits(
            max_running=12,
            resources={PROVIDER: PROVIDER_SLOTS},
            kinds={kind.name: kind.most for kind in KINDS},
            weights={"acme": 2},
            band_slots=share_slots({1: 25}, 12),
        )
        self.sim = Simulator(rules, lasts=self._lasts, verdict=self._verdict, watch=self._watch)

    def run(self) -> GameDay:
        for job, kind in self._arrivals():
            self.sim.at(job.arrives, lambda job=job, kind=kind: self._at_the_door(job, kind))  # type: ignore[misc]
        self.sim.run()
        for row, starts in self._starts_by_row().items():
            self.rows[row].burst = most_in_ten_seconds([at for at, _ in starts])
            self.rows[row].retry_burst = most_in_ten_seconds([at for at, again in starts if again])
        return self

    def row(self, at: int | None = None) -> Row:
        return self.rows.setdefault((self.sim.now if at is None else at) // ROW, Row())

    # ---------------------------------------------------------------- what comes

    def _arrivals(self) -> Iterator[tuple[Job, Kind]]:
        number = 0
        for kind in KINDS:
            at = 0.0
            while (at := at + self._random.expovariate(1 / kind.every)) < LAST_ARRIVAL:
                number += 1
                job = Job(number, int(at), kind.length, kind.band, kind=kind.name, needs=kind.needs)
                job.tenant = self._random.choice(kind.tenants)
                job.start_within = CHAT_WAITS if kind.name == "chat" else None
                yield job, kind

    def _at_the_door(self, job: Job, kind: Kind) -> None:
        self.row().came += 1
        self.row().chat_came += kind.name == "chat"
        if sum(each.kind == kind.name for each in self.sim.waiting.values()) >= kind.cap:
            self.row().refused += 1
            return
        self.jobs.append(job)
        self.sim.add(job)

    # ---------------------------------------------------------------- what becomes of it

    def _lasts(self, sim: Simulator, job: Job) -> int:
        if not job.needs:
            return job.length
        slow = SLOW_FROM <= sim.now < RESTORED_AT
        calls = sum(bool(each.needs) for each in sim.active.values())
        if slow and calls > BEARS and self._random.random() < MET_LIMIT:
            self._endings[job.job_id] = RATE_LIMITED
            return 2 * SECOND
        if slow and self._random.random() < FAILED:
            self._endings[job.job_id] = BROKEN
        length = int(job.length * self._random.uniform(0.5, 1.5))
        return length * SLOWER if slow else length

    def _verdict(self, sim: Simulator, job: Job) -> int | None:
        end = self._endings.pop(job.job_id, None)
        if end is None:
            if job.needs:
                self._rests_in_a_row = 0
            return None
        if self.naive:
            return sim.now
        if end is RATE_LIMITED:
            self._rest(sim)
        job.charged += end.charged
        policy = retry.Policy(3, 30 * SECOND, 60 * MINUTE, 24 * 60 * MINUTE, "retry", job.arrives, None)
        decided = retry.after(end, job.charged, policy, False, sim.now, self._random.uniform(*retry.JITTER))
        if decided.state == "dead":
            return None
        return sim.now if decided.run_after is None else decided.run_after

    def _rest(self, sim: Simulator) -> None:
        """Limits that are met while it rests count once."""
        rest = sim.rests.get(PROVIDER)
        if rest is None or sim.now >= rest.until:
            length = min(LONGEST_REST, FIRST_REST << self._rests_in_a_row)
            sim.cool(PROVIDER, sim.now + length, int(2 * SECOND * self._random.uniform(*retry.JITTER)))
            self._rests_in_a_row += 1
            self.row().rests += 1

    # ---------------------------------------------------------------- what is seen

    def _watch(self, sim: Simulator, decisions: list[Decision]) -> None:
        waiting = Counter(job.band for job in sim.waiting.values())
        row = self.row()
        row.bulk_waits = max(row.bulk_waits, waiting[3])
        row.all_wait = max(row.all_wait, waiting.total())

    def _starts_by_row(self) -> dict[int, list[tuple[int, bool]]]:
        starts: dict[int, list[tuple[int, bool]]] = {}
        seen: set[int] = set()
        for at, job, _ in self.sim.started:
            again = job.job_id in seen
            seen.add(job.job_id)
            row = self.row(at)
            row.attempts += bool(job.needs)
            row.retries += again
            if job.kind == "chat" and not again:
                row.chat_answered += 1
                row.chat_longest = max(row.chat_longest, at - job.arrives)
            if job.needs:
                starts.setdefault(at // ROW, []).append((at, again))
        for job in self.jobs:
            if job.state == "expired":
                self.row(job.ended_at).chat_expired += 1
        return starts


def most_in_ten_seconds(times: list[int]) -> int:
    first = most = 0
    for n, at in enumerate(times):
        while times[first] <= at - 10 * SECOND:
            first += 1
        most = max(most, n - first + 1)
    return most


COLUMNS = "minutes,came,refused,chat,started,expired,longest,attempts,retries,rests,bulk,all,in 10 s,again"


def table(day: GameDay) -> str:
    lines: list[tuple[str, ...]] = [tuple(COLUMNS.split(","))]
    for number in range(max(day.rows) + 1):
        row = day.rows.get(number, Row())
        start = number * ROW
        name = "slow" if SLOW_FROM <= start < RESTORED_AT else "" if start < SLOW_FROM else "restored"
        counts = (row.came, row.refused, row.chat_came, row.chat_answered, row.chat_expired)
        more = (row.attempts, row.retries, row.rests, row.bulk_waits, row.all_wait)
        lines.append(
            (
                f"{start // MINUTE}-{(start + ROW) // MINUTE} {name}".strip(),
                *map(str, counts),
                f"{row.chat_longest / SECOND:.1f} s",
                *map(str, more),
                str(row.burst),
                str(row.retry_burst),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


if __name__ == "__main__":
    print("From minute 20 to 60 a provider is six times slower and bears three calls at once.\n")
    print(table(GameDay().run()))
    print(
        "\nJobs that came and were refused at the door; chat that came, started, or expired unstarted"
        "\nafter 5 s, and the longest wait of what started; attempts that held the provider, second and"
        "\nlater tries, rests of the provider; most that waited; most starts in any ten seconds that held"
        "\nthe provider, and of these second and later tries."
    )
