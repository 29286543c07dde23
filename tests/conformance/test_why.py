"""Why a queued job has not started: every reason, from the rows that a pass of admission leaves."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import apsw
import pytest

from clawq import states as job
from clawq.errors import NoSuchJob
from clawq.settings import Settings
from clawq.store import ledger, reasons, sqlfile, told
from clawq.store.why import why
from tests.moves import put_in
from tests.rows import put, refuse

THEN = 1_000_000
NOW = 1_060_000

BODY = json.loads(sqlfile.read("default_config.json"))


def configured(**parts: Any) -> Settings:
    """The defaults with some tables replaced or added to."""
    body = copy.deepcopy(BODY)
    for name, part in parts.items():
        body[name] |= part
    return Settings(body)


DEFAULTS = configured()
TOKENS = configured(
    budgets={"tokens": {"limit": 100, "per_ms": 60_000, "per_tenant": 60}},
    kinds={"k": {"spends": {"tokens": 40}}},
)


def clock(at: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at / 1000))


def ask(
    db: apsw.Connection, job_id: int, settings: Settings = DEFAULTS, supervisor: str | None = "run"
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = why(db, settings, job_id, NOW, supervisor)["blocked_by"]
    for row in rows:
        assert list(row) == ["reason", "measured", "limit", "since", "clears_when"]
        assert row["clears_when"]
        assert "{" not in row["clears_when"]
    return rows


def names(db: apsw.Connection, job_id: int, supervisor: str | None = "run") -> list[str]:
    return [row["reason"] for row in ask(db, job_id, supervisor=supervisor)]


class TestStates:
    @pytest.mark.parametrize("state", [job.STARTING, job.RUNNING, *job.ENDED])
    def test_nothing_keeps_what_runs_or_has_ended(self, db: apsw.Connection, state: str) -> None:
        assert names(db, put_in(db, state), supervisor=None) == []

    @pytest.mark.parametrize(
        ("state", "reason"), [(job.SCHEDULED, "not_due"), (job.HELD, "held"), (job.UNKNOWN, "unknown")]
    )
    def test_what_stands_aside(self, db: apsw.Connection, state: str, reason: str) -> None:
        assert names(db, put_in(db, state)) == [reason]

    def test_a_scheduled_job_says_when(self, db: apsw.Connection) -> None:
        soon, late = (put_in(db, job.SCHEDULED, run_after=at) for at in (NOW + 5_000, NOW + 9 * 86_400_000))
        assert ask(db, soon)[0]["clears_when"] == f"it is due, at {clock(NOW + 5_000)}"
        date = time.strftime("%Y-%m-%d", time.localtime(NOW / 1000 + 9 * 86_400))
        assert ask(db, late)[0]["clears_when"].startswith(f"it is due, at {date} ")

    def test_no_supervisor_comes_first_and_a_lanes_old_reason_after_it_not_at_all(
        self, db: apsw.Connection
    ) -> None:
        job_id = put(db)
        refuse(db, "low_memory", measured=100.0, limit_value=512.0)
        assert names(db, job_id) == ["low_memory"]
        assert names(db, job_id, supervisor=None) == ["no_supervisor"]
        assert names(db, put_in(db, job.SCHEDULED), supervisor=None) == ["no_supervisor", "not_due"]
        assert names(db, put_in(db, job.HELD), supervisor=None) == ["held"]

    @pytest.mark.parametrize("mode", ["drain", "now", "handover"])
    def test_a_supervisor_that_ends_starts_nothing(self, db: apsw.Connection, mode: str) -> None:
        (row,) = ask(db, put(db), supervisor=mode)
        assert row["reason"] == "no_supervisor"
        assert row["clears_when"] == reasons.STOPPING

    def test_no_such_job(self, db: apsw.Connection) -> None:
        with pytest.raises(NoSuchJob):
            why(db, DEFAULTS, 1, NOW, "run")

    def test_next_in_turn_or_behind_others_and_never_a_position(self, db: apsw.Connection) -> None:
        ids = [put(db, THEN + n) for n in range(3)]
        urgent = put(db, THEN + 9, priority=5)
        other = put(db, THEN + 99, kind="another lane")
        found = [why(db, DEFAULTS, id, NOW, "run") for id in (urgent, *ids, other)]
        assert [each["behind"] for each in found] == [False, True, True, True, False]
        assert all(each["blocked_by"] == [] for each in found)


class TestPauses:
    @pytest.mark.parametrize(
        ("scope", "name"),
        [("all", ""), ("tenant", "t"), ("kind", "k"), ("band", "2"), ("resource", "browser")],
    )
    def test_each_pause_that_keeps_it(self, db: apsw.Connection, scope: str, name: str) -> None:
        job_id = put(db, tenant="t", kind="k", needs="browser,shell")
        other = put(db, tenant="o", kind="o", band=1)
        db.execute("INSERT INTO pauses VALUES (?, ?, 5)", (scope, name))
        (row,) = ask(db, job_id)
        assert (row["reason"], row["since"]) == ("paused", 5)
        option = {"all": "", "band": " --band normal"}.get(scope, f" --{scope} {name}")
        assert row["clears_when"] == f"a person says `clawq resume{option}`"
        assert names(db, other) == (["paused"] if scope == "all" else [])

    def test_a_pause_that_was_lifted_is_no_reason(self, db: apsw.Connection) -> None:
        job_id = put(db)
        refuse(db, "paused")
        assert ask(db, job_id) == []


class TestParked:
    def test_a_name_names_its_holder(self, db: apsw.Connection) -> None:
        holder = put_in(db, job.RUNNING, NOW - 9_000, exclusive="deploy")
        db.execute("UPDATE jobs SET started_at = ? WHERE id = ?", (NOW - 9_000, holder))
        early, late = (
            put(db, at, exclusive="deploy", parked="exclusive:deploy") for at in (THEN, NOW - 1_000)
        )
        (row,) = ask(db, early)
        assert (row["reason"], row["measured"], row["limit"]) == ("exclusive:deploy", 1, 1)
        assert row["clears_when"] == f"job {holder} ends, which has this name"
        assert (row["since"], ask(db, late)[0]["since"]) == (NOW - 9_000, NOW - 1_000)

    def test_a_name_between_two_holders(self, db: apsw.Connection) -> None:
        (row,) = ask(db, put(db, exclusive="x", parked="exclusive:x"))
        assert (row["measured"], row["clears_when"]) == (0, "the job before it with this name has run")

    def test_a_workflow_names_its_running_jobs(self, db: apsw.Connection) -> None:
        root = put_in(db, job.RUNNING)
        children = [put_in(db, job.RUNNING, root_id=root) for _ in range(3)]
        put_in(db, job.RUNNING, root_id=999)
        (row,) = ask(db, put(db, root_id=root, parked="workflow_limit", exclusive="x"))
        assert (row["reason"], row["measured"], row["limit"]) == ("workflow_limit", 4, 4)
        shown = f"{root}, {children[0]}, {children[1]} and 1 more"
        assert row["clears_when"] == f"one of the jobs {shown} ends, which are of its workflow"


class TestFigures:
    def test_they_stay_as_measured(self, db: apsw.Connection) -> None:
        job_id = put(db)
        refuse(db, "uid_procs", measured=612.0, limit_value=550.0)
        (row,) = ask(db, job_id)
        assert row == {
            "reason": "uid_procs",
            "measured": 612,
            "limit": 550,
            "since": THEN,
            "clears_when": "the account has fewer than 550 processes",
        }
        assert isinstance(row["measured"], int)

    def test_pressure_is_a_word(self, db: apsw.Connection) -> None:
        job_id = put(db)
        refuse(db, "memory_pressure", measured=2.0, limit_value=1.0)
        (row,) = ask(db, job_id)
        assert (row["measured"], row["limit"]) == ("critical", "warn")
        assert row["clears_when"] == "the system's memory pressure is warn or less"

    @pytest.mark.parametrize(
        ("reason", "limit", "clears_at", "clears"),
        [
            ("low_memory", 512.0, None, "512 MB of memory are free"),
            ("low_disk", 2048.0, None, "2048 MB of the disk are free"),
            ("spawn_failed", None, NOW + 7_000, f"the next start is tried, at {clock(NOW + 7_000)}"),
            ("spawn_failed", None, None, "the next start is tried"),
            ("ramp_up", 1.0, None, "more starts are allowed: twice as many every few seconds"),
            ("band_share", 7.0, None, "a job ends whose slot is not kept for another band"),
            ("max_waiting", 16.0, None, "one of the jobs that wait goes on"),
        ],
    )
    def test_gates_and_counts(
        self, db: apsw.Connection, reason: str, limit: float | None, clears_at: int | None, clears: str
    ) -> None:
        job_id = put(db)
        refuse(db, reason, limit_value=limit, clears_at=clears_at)
        (row,) = ask(db, job_id)
        assert (row["reason"], row["limit"], row["since"], row["clears_when"]) == (
            reason,
            limit,
            THEN,
            clears,
        )

    @pytest.mark.parametrize(
        ("reason", "who"),
        [
            ("max_running", "one of the jobs 1, 2, 3 ends"),
            ("tenant_limit", "one of the jobs 1, 2 ends, which are of tenant t"),
            ("kind_limit", "job 2 ends, which is of kind k"),
        ],
    )
    def test_limits_name_those_that_count(self, db: apsw.Connection, reason: str, who: str) -> None:
        for of in ({"tenant": "t"}, {"tenant": "t", "kind": "k"}, {}):
            put_in(db, job.RUNNING, **of)
        job_id = put(db, tenant="t", kind="k")
        refuse(db, reason, tenant="t", kind="k", measured=1.0, limit_value=1.0)
        assert ask(db, job_id)[0]["clears_when"] == who

    def test_jobs_behind_answer_with_their_lanes_reason(self, db: apsw.Connection) -> None:
        ids = [put(db) for _ in range(3)]
        refuse(db, "max_running")
        assert [names(db, job_id) for job_id in ids] == [["max_running"]] * 3

    def test_a_reason_nobody_has_words_for(self, db: apsw.Connection) -> None:
        job_id = put(db)
        refuse(db, "a_new_reason")
        assert names(db, job_id) == ["a_new_reason"]


class TestResources:
    def test_holders_are_named(self, db: apsw.Connection) -> None:
        first, second = (put_in(db, job.RUNNING, needs="browser,shell") for _ in range(2))
        put_in(db, job.RUNNING, needs="shell")
        job_id = put(db, needs="browser")
        refuse(db, "resource:browser", needs="browser", measured=2.0, limit_value=2.0)
        (row,) = ask(db, job_id)
        assert (row["measured"], row["limit"]) == (2, 2)
        assert row["clears_when"] == f"one of the jobs {first}, {second} ends, which hold browser"

    def test_a_holder_that_has_just_left(self, db: apsw.Connection) -> None:
        job_id = put(db, needs="browser")
        refuse(db, "resource:browser", needs="browser")
        assert ask(db, job_id)[0]["clears_when"] == "a job that holds browser ends"

    def test_a_head_with_a_reservation_says_so_and_when(self, db: apsw.Connection) -> None:
        holder = put_in(db, job.RUNNING, needs="browser")
        head, behind = put(db, THEN, needs="browser,shell"), put(db, THEN + 1, needs="browser,shell")
        short = {"short_job": head, "short_since": NOW - 300_000, "promised_at": NOW + 60_000}
        refuse(db, "resource:browser", needs="browser,shell", **short)
        held = f"job {holder} ends, which holds browser"
        assert ask(db, head)[0]["clears_when"] == (
            f"{held}; it has reserved browser and shell; at the latest at {clock(NOW + 60_000)}"
        )
        assert ask(db, behind)[0]["clears_when"] == held
        db.execute("UPDATE lanes SET promised_at = NULL")
        assert ask(db, head)[0]["clears_when"] == held

    def test_a_reservation_is_kept_while_a_count_is_in_the_way(self, db: apsw.Connection) -> None:
        job_id = put(db, needs="browser")
        short = {"short_job": job_id, "short_since": THEN, "promised_at": NOW + 60_000}
        refuse(db, "max_running", needs="browser", **short)
        at = clock(NOW + 60_000)
        assert ask(db, job_id)[0]["clears_when"] == (
            f"a running job ends; it has reserved browser; at the latest at {at}"
        )

    def test_whoever_is_kept_back_by_a_reservation_learns_whose(self, db: apsw.Connection) -> None:
        waits = {"short_since": NOW - 300_000, "promised_at": NOW + 60_000}
        owner = put(db, needs="browser,shell")
        refuse(db, "resource:shell", needs="browser,shell", short_job=owner, **waits)
        stranger = put(db, needs="local_model")
        refuse(db, "resource:local_model", needs="local_model", short_job=stranger, **waits)
        young = put(db, needs="browser", tenant="young")
        refuse(db, "reserved", needs="browser", tenant="young", short_job=young, short_since=NOW)
        (row,) = ask(db, young)
        latest = f"at the latest at {clock(NOW + 60_000)}"
        assert row["clears_when"] == f"job {owner} starts, which has reserved browser; {latest}"
        db.execute("UPDATE lanes SET promised_at = NULL")
        assert ask(db, young)[0]["clears_when"] == "the job that it is reserved for starts"


class TestBudgets:
    def spend(self, db: apsw.Connection, amount: int, at: int, tenant: str = "default") -> None:
        ledger.reserve(db, tenant, at, [("tokens", amount)], at)

    def waiting(self, db: apsw.Connection) -> int:
        job_id = put(db, kind="k")
        refuse(db, "budget:tokens", kind="k", measured=1.0, limit_value=100.0)
        return job_id

    def test_it_says_when_the_window_has_room_for_this_job(self, db: apsw.Connection) -> None:
        job_id = self.waiting(db)
        for amount, at in ((30, NOW - 50_000), (30, NOW - 20_000), (40, NOW - 10_000)):
            self.spend(db, amount, at, tenant=f"t{at}")
        (row,) = ask(db, job_id, TOKENS)
        assert (row["measured"], row["limit"]) == (100, 100)
        # 40 are free only once the second entry has left, too.
        at = clock(NOW + 40_000)
        assert row["clears_when"] == f"40 of tokens are free, at {at} if nothing else takes them"

    def test_what_left_the_window_counts_no_more(self, db: apsw.Connection) -> None:
        job_id = self.waiting(db)
        self.spend(db, 99, NOW - 60_000)
        self.spend(db, 61, NOW - 1_000, tenant="other")
        (row,) = ask(db, job_id, TOKENS)
        assert (row["measured"], row["limit"]) == (61, 100)

    def test_a_tenants_own_part(self, db: apsw.Connection) -> None:
        job_id = self.waiting(db)
        self.spend(db, 10, NOW - 50_000)
        self.spend(db, 20, NOW - 30_000)
        (row,) = ask(db, job_id, TOKENS)
        # 70 of 100 are free, but of its 60 only 30.
        assert (row["measured"], row["limit"]) == (30, 60)
        assert f"at {clock(NOW + 10_000)}" in row["clears_when"]

    def test_room_that_has_come_since_the_pass(self, db: apsw.Connection) -> None:
        (row,) = ask(db, self.waiting(db), TOKENS)
        assert (row["measured"], row["limit"]) == (1, 100)
        assert row["clears_when"] == "enough of what is used has left the window, or was given back"


class TestCooldowns:
    def waiting(self, db: apsw.Connection) -> int:
        job_id = put(db, needs="browser")
        refuse(db, "cooldown:browser", needs="browser")
        return job_id

    END = "; `clawq throttle browser --for 0` ends that now"

    def test_at_rest(self, db: apsw.Connection) -> None:
        told.cool(db, "browser", NOW + 5_000, 2_000, NOW)
        (row,) = ask(db, self.waiting(db))
        at = clock(NOW + 5_000)
        assert row["clears_when"] == f"browser has rested, at {at}; then one job probes it first{self.END}"
        assert (row["measured"], row["since"]) == (None, THEN)

    def test_one_job_probes(self, db: apsw.Connection) -> None:
        told.cool(db, "browser", THEN, 2_000, THEN)
        job_id = self.waiting(db)
        assert (
            ask(db, job_id)[0]["clears_when"] == f"one job has probed browser, the next that starts{self.END}"
        )
        probe = put_in(db, job.RUNNING, THEN, needs="browser")
        ledger.note_start(db, ["browser"], ["browser"], 1_000 + probe)
        says = f"job {probe}, which probes browser, has ended or has run for a minute{self.END}"
        assert ask(db, job_id)[0]["clears_when"] == says

    def test_coming_back(self, db: apsw.Connection) -> None:
        told.cool(db, "browser", THEN, 2_000, THEN)
        ledger.note_start(db, ["browser"], ["browser"], 7)
        ledger.note_end(db, 7, True, NOW - 4_500)
        ledger.note_start(db, ["browser"], ["browser"], 8)
        (row,) = ask(db, self.waiting(db))
        assert (row["measured"], row["limit"]) == (1, 4)
        assert row["clears_when"] == f"more may use browser again: twice as many every 2s{self.END}"


class TestNeverFits:
    @pytest.mark.parametrize(
        ("needs", "settings", "lacks"),
        [
            ("gone", TOKENS, "gives resource gone a slot"),
            ("", configured(kinds={"k": {"spends": {"tokens": 9}}}), "gives budget tokens 9 or more"),
            (
                "",
                configured(
                    budgets={"tokens": {"limit": 100, "per_ms": 1, "per_tenant": 60}},
                    kinds={"k": {"spends": {"tokens": 61}}},
                ),
                "gives budget tokens 61 or more",
            ),
        ],
    )
    def test_it_says_what_is_missing(
        self, db: apsw.Connection, needs: str, settings: Settings, lacks: str
    ) -> None:
        job_id = put(db, kind="k", needs=needs)
        refuse(db, "never_fits", kind="k", needs=needs)
        (row,) = ask(db, job_id, settings)
        assert row["clears_when"] == f"clawq.toml {lacks}; or `clawq cancel {job_id}`"

    def test_a_kind_that_is_gone_lacks_its_command(self, db: apsw.Connection) -> None:
        job_id = put(db, kind="gone", command=None)
        refuse(db, "never_fits", kind="gone")
        (row,) = ask(db, job_id)
        assert row["clears_when"] == f"clawq.toml gives kind gone a command; or `clawq cancel {job_id}`"


class TestWords:
    def test_every_reason_of_admission_has_words(self) -> None:
        known = {key for key in reasons.REASONS if reasons.in_general(key)}
        contract = (
            "uid_procs low_memory memory_pressure low_disk spawn_failed ramp_up max_running tenant_limit"
            " kind_limit workflow_limit band_share exclusive:NAME resource:NAME budget:NAME cooldown:NAME"
            " paused reserved max_waiting never_fits no_supervisor not_due held children unknown"
        )
        assert known == set(contract.split())

    @pytest.mark.parametrize("key", reasons.REASONS)
    def test_what_clears_one_reads_well_in_general(self, key: str) -> None:
        text = reasons.in_general(key)
        assert text
        assert "{" not in text

    def test_braces_in_a_name_are_only_text(self) -> None:
        assert reasons.clears_when("resource:{who}{x}") == "a job that holds {who}{x} ends"
