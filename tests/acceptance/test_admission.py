"""Who runs next, and what the others are told: a real supervisor, real agents, the command line."""

from __future__ import annotations

import datetime
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clawq.paths import Home
from tests.fleet import Fleet
from tests.waiting import until


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


class Held:
    """Jobs that run until they are let go."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def __call__(self, name: str, *options: str) -> int:
        path = self.path(name)
        return self.fleet.script(*options, f'until [ -e "{path}" ]; do sleep 0.05; done')

    def path(self, name: str) -> Path:
        return self.fleet.scratch / f"go-{name}"

    def let_go(self, *names: str) -> None:
        for name in names:
            self.path(name).touch()


@pytest.fixture
def held(fleet: Fleet) -> Held:
    return Held(fleet)


def blocked(fleet: Fleet, job_id: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = fleet.json("why", job_id)["blocked_by"]
    return rows


def until_blocked(
    fleet: Fleet, job_id: int, reason: str, words: str = "", seconds: float = 20
) -> dict[str, Any]:
    """The row of `why` with this reason, once what clears it has these words."""

    def look() -> dict[str, Any] | None:
        return next(
            (
                row
                for row in blocked(fleet, job_id)
                if row["reason"] == reason and words in row["clears_when"]
            ),
            None,
        )

    found = until(
        look, seconds, lambda: f"{reason} {words!r}: {fleet.json('show', job_id)} {blocked(fleet, job_id)}"
    )
    assert found is not None
    return found


def at_s(iso: str) -> float:
    """Seconds since the epoch."""
    return datetime.datetime.fromisoformat(iso.replace("Z", "+00:00")).timestamp()


def waits_for(fleet: Fleet, job_id: int) -> float:
    """Seconds since its reason has stood."""
    return time.time() - at_s(blocked(fleet, job_id)[0]["since"])


def started(fleet: Fleet, *ids: int) -> dict[int, int]:
    """{id: when its first attempt was seen to run, ms}."""
    return {
        job_id: round(at_s(fleet.json("show", job_id)["attempts"][0]["started_at"]) * 1000) for job_id in ids
    }


class TestReasons:
    def test_every_queued_row_answers_also_behind_a_head_that_started(self, fleet: Fleet, held: Held) -> None:
        fleet.configure('[kinds.one]\nmax_running = 1\ncommand = ["true"]\n')
        with fleet.supervised():
            first, second, third = (
                fleet.script("one", f'until [ -e "{held.path(name)}" ]; do sleep 0.05; done')
                for name in "abc"
            )
            fleet.until_state(first, "running")
            row = until_blocked(fleet, third, "kind_limit")
            assert (row["measured"], row["limit"]) == (1, 1)
            assert row["clears_when"] == f"job {first} ends, which is of kind one"
            held.let_go("a")
            fleet.until_state(second, "running")
            row = until_blocked(fleet, third, "kind_limit")
            assert row["clears_when"] == f"job {second} ends, which is of kind one"
            held.let_go("b", "c")
            fleet.until_state(third, "succeeded")

    def test_jobs_of_a_kind_that_leaves_the_configuration_wait_for_it(self, fleet: Fleet) -> None:
        configured = '[kinds.one]\ncommand = ["true"]\n'
        fleet.configure(configured)
        job_id = fleet.enqueue("one")
        fleet.configure("")
        with fleet.supervised():
            row = until_blocked(fleet, job_id, "never_fits")
            assert row["clears_when"] == f"clawq.toml gives kind one a command; or `clawq cancel {job_id}`"
            assert "never_fits" in [alert["reason"] for alert in fleet.json("status")["alerts"]]
            fleet.configure(configured)
            fleet.until_state(job_id, "succeeded")

    def test_a_name_a_resource_and_a_pause_each_name_what_clears_them(self, fleet: Fleet, held: Held) -> None:
        fleet.configure("[resources.lamp]\nlimit = 1\n")
        with fleet.supervised():
            holder = held("a", "--needs", "lamp", "--exclusive", "x")
            fleet.until_state(holder, "running")
            named = held("b", "--exclusive", "x")
            needs = held("c", "--needs", "lamp")
            assert f"job {holder} ends" in until_blocked(fleet, named, "exclusive:x")["clears_when"]
            row = until_blocked(fleet, needs, "resource:lamp")
            assert row["clears_when"] == f"job {holder} ends, which holds lamp"
            assert (row["measured"], row["limit"]) == (1, 1)
            fleet.clawq("pause", "--resource", "lamp")
            assert "clawq resume --resource lamp" in until_blocked(fleet, needs, "paused")["clears_when"]
            fleet.clawq("resume", "--resource", "lamp")
            until_blocked(fleet, needs, "resource:lamp")
            shown = fleet.json("show", needs)["deferrals"]
            assert {row["reason"] for row in shown} >= {"resource:lamp", "paused"}
            assert "resource:lamp" in fleet.clawq("show", needs).stdout
            held.let_go("a", "b", "c")
            for job_id in (named, needs):
                fleet.until_state(job_id, "succeeded")


class TestReservations:
    def test_two_resources_under_a_stream_of_jobs_that_need_one(self, fleet: Fleet, held: Held) -> None:
        fleet.configure(
            '[limits]\nreserve_after = "1s"\n[resources.a]\nlimit = 1\n[resources.b]\nlimit = 1\n'
            '[kinds.default]\ntimeout = "10m"\n'
        )
        with fleet.supervised():
            on_a, on_b = held("a", "--needs", "a"), held("b", "--needs", "b")
            for job_id in (on_a, on_b):
                fleet.until_state(job_id, "running")
            both = held("ab", "--needs", "a,b")
            until_blocked(fleet, both, "resource:a")
            until(lambda: waits_for(fleet, both) > 1.5)
            later = held("later", "--needs", "a")
            held.let_go("a")
            row = until_blocked(fleet, later, "reserved")
            assert row["clears_when"].startswith(f"job {both} starts, which has reserved a")
            row = until_blocked(fleet, both, "resource:b", "it has reserved a and b; at the latest at ")
            assert row["clears_when"].startswith(f"job {on_b} ends, which holds b")
            held.let_go("b")
            fleet.until_state(both, "running")
            until_blocked(fleet, later, "resource:a", f"job {both} ends")
            held.let_go("ab", "later")
            fleet.until_state(later, "succeeded")


class TestBudgets:
    WINDOW_S = 6

    def test_the_third_job_waits_for_the_window(self, fleet: Fleet) -> None:
        fleet.configure(
            f'[budgets.mails]\nlimit = 2\nper = "{self.WINDOW_S}s"\n'
            '[kinds.mail]\ncommand = ["true"]\nspends = { mails = 1 }\n'
        )
        ids = [fleet.enqueue("mail") for _ in range(3)]
        with fleet.supervised():
            row = until_blocked(fleet, ids[2], "budget:mails", "1 of mails are free, at ")
            assert (row["measured"], row["limit"]) == (2, 2)
            found = fleet.json("status")["budgets"]["mails"]
            assert (found["used"], found["limit"], found["per_s"]) == (2, 2, self.WINDOW_S)
            assert found["per_tenant"] == {"default": 2}
            assert 0 <= found["frees_in_s"] <= self.WINDOW_S
            for job_id in ids:
                fleet.until_state(job_id, "succeeded")
        at = started(fleet, *ids)
        # An agent is seen to run a moment after its amount is reserved.
        assert at[ids[2]] - at[ids[0]] >= self.WINDOW_S * 1000 - 500


class TestCooldowns:
    def test_after_the_rest_one_probes_and_then_the_others_come_back(self, fleet: Fleet, held: Held) -> None:
        fleet.configure("[resources.api]\nlimit = 4\n")
        with fleet.supervised():
            fleet.clawq("pause")
            ids = [held(name, "--needs", "api") for name in "abcd"]
            fleet.clawq("throttle", "api", "--for", "4s")
            fleet.clawq("resume")
            row = until_blocked(fleet, ids[3], "cooldown:api", "api has rested, at ")
            assert "`clawq throttle api --for 0` ends that now" in row["clears_when"]
            found = fleet.json("status")["resources"]["api"]
            assert found["cooldown"] == "resting"
            assert 0 < found["cooldown_s"] <= 4
            done = fleet.clawq("resume", "--resource", "api")
            assert "is no pause: `clawq throttle api --for 0` ends that" in done.stderr
            fleet.until_state(ids[0], "running")
            row = until_blocked(fleet, ids[1], "cooldown:api", f"job {ids[0]}, which probes api")
            assert [fleet.state(job_id) for job_id in ids[1:]] == ["queued"] * 3
            assert "one job probes" in fleet.clawq("status").stdout
            held.let_go("a")
            fleet.until_state(ids[0], "succeeded")
            for job_id in ids[1:]:
                fleet.until_state(job_id, "running")
            held.let_go("b", "c", "d")

    def test_a_rest_can_be_ended_by_hand(self, fleet: Fleet, held: Held) -> None:
        with fleet.supervised():
            fleet.clawq("throttle", "browser", "--for", "1h")
            ids = [held(name, "--needs", "browser") for name in "ab"]
            until_blocked(fleet, ids[1], "cooldown:browser")
            fleet.clawq("throttle", "browser", "--for", "0")
            for job_id in ids:
                fleet.until_state(job_id, "running")
            assert fleet.json("status")["resources"]["browser"]["cooldown"] is None
            held.let_go("a", "b")


class TestFootprints:
    def test_a_tree_that_outgrows_its_kind_is_ended_and_says_so(self, fleet: Fleet) -> None:
        fleet.configure(
            '[kinds.forks]\nmax_procs = 5\nmax_attempts = 1\ngrace = "1s"\n'
            'command = ["sh", "-c", "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 600 & done; wait"]\n'
        )
        with fleet.supervised():
            job_id = fleet.enqueue("forks")
            fleet.until_state(job_id, "dead", seconds=30)
        (attempt,) = fleet.json("show", job_id)["attempts"]
        assert attempt["outcome"] == "over_footprint"
        assert "limit 5" in attempt["error"]
        assert attempt["peak_procs"] > 5
        shown = fleet.clawq("show", job_id).stdout
        assert "at its peak" in shown
        assert "over_footprint" in shown


class TestShares:
    def test_a_share_keeps_a_slot_for_its_band(self, fleet: Fleet, held: Held) -> None:
        fleet.configure("[limits]\nmax_running = 2\n[bands.interactive]\nshare = 50\n")
        with fleet.supervised():
            first = held("a", "--band", "bulk")
            fleet.until_state(first, "running")
            second = held("b", "--band", "bulk")
            row = until_blocked(fleet, second, "band_share")
            assert (row["measured"], row["limit"]) == (1, 1)
            chat = held("c", "--band", "interactive")
            fleet.until_state(chat, "running")
            assert fleet.state(second) == "queued"
            held.let_go("a", "b", "c")
            fleet.until_state(second, "succeeded")

    def test_weights_of_two_to_one_share_one_slot_two_to_one(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_running = 1\n[tenants.a]\nweight = 2\n[tenants.b]\nweight = 1\n")
        lines = [json.dumps({"command": ["true"], "tenant": tenant}) for tenant in "ab" for _ in range(30)]
        batch = fleet.scratch / "batch"
        batch.write_text("\n".join(lines) + "\n")
        fleet.clawq("enqueue", "--batch", batch)
        fleet.run_until_idle()
        rows = fleet.json("list", "--state", "succeeded", "--limit", "100")
        assert len(rows) == 60
        first = sorted(rows, key=lambda row: (row["started_at"], row["id"]))[:30]
        counts = Counter(row["tenant"] for row in first)
        assert abs(counts["a"] - 20) <= 1, counts


class TestObserving:
    def test_everything_starts_and_status_says_what_enforcing_would_have_done(
        self, fleet: Fleet, held: Held
    ) -> None:
        fleet.configure("[limits]\nmax_running = 1\n")
        with fleet.supervised("--observe"):
            ids = [held(name) for name in "abc"]
            for job_id in ids:
                fleet.until_state(job_id, "running")
            found = fleet.json("status")
            assert found["supervisor"]["mode"] == "observe"
            assert found["observed"]["since"] is not None
            (row,) = found["observed"]["start"]
            assert (row["reason"], row["kind"], row["count"]) == ("max_running", "default", 2)
            shown = fleet.clawq("status").stdout
            assert "enforcing would have refused 0 jobs and put off 2 starts" in " ".join(shown.split())
            held.let_go("a", "b", "c")
            for job_id in ids:
                fleet.until_state(job_id, "succeeded")
        with fleet.supervised():
            until(lambda: fleet.json("status")["supervisor"]["mode"] == "run")
            assert fleet.json("status")["observed"]["start"][0]["count"] == 2, "it stays to be read"

    def test_producers_are_not_refused_and_it_is_written_down(self, fleet: Fleet) -> None:
        fleet.configure('mode = "observe"\n[kinds.k]\ncommand = ["true"]\nqueue_cap = 1\n')
        with fleet.supervised():
            until(lambda: fleet.json("status")["observed"]["since"])
            fleet.clawq("pause")
            for _ in range(3):
                fleet.enqueue("k")
            (row,) = fleet.json("status")["observed"]["enqueue"]
            assert (row["reason"], row["count"]) == ("kind_queue_full", 2)


class TestRampUp:
    def test_after_a_crash_starts_come_one_by_one(self, fleet: Fleet, held: Held) -> None:
        fleet.configure("[limits]\nmax_running = 4\n")
        process = fleet.start()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        ids = [held(name) for name in "abcd"]
        with fleet.supervised():
            until_blocked(fleet, ids[3], "ramp_up", "twice as many")
            assert "jobs start by ones, twos and fours" in fleet.clawq("status").stdout
            for job_id in ids:
                fleet.until_state(job_id, "running")
            at = started(fleet, *ids)
            assert at[ids[3]] - at[ids[0]] >= 2_000, at
            held.let_go("a", "b", "c", "d")
            for job_id in ids:
                fleet.until_state(job_id, "succeeded")
