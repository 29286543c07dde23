"""Too much at once, with real processes: caps under a storm, and what full and busy kinds answer."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections import Counter

import pytest

from clawq.paths import Home
from tests.fleet import Fleet
from tests.producers import CLAWQ, answer, at_once, clawq, configure, rows
from tests.sizes import sized
from tests.waiting import until

STORM = sized(80, 200)


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def storm(lines: list[list[str]]) -> Counter[tuple[int, str | None]]:
    """How often each (exit code, reason) was the answer; a lock held too long is asked again, as it says."""
    answers: Counter[tuple[int, str | None]] = Counter()
    while lines:
        asked, lines = lines, []
        for line, done in zip(asked, at_once(asked), strict=True):
            reason = json.loads(done.stdout)["reason"]
            if reason == "database_busy":
                lines.append(line)
            else:
                answers[done.returncode, reason] += 1
    return answers


@pytest.mark.sized
def test_a_webhook_storm_while_nobody_runs(home: Home) -> None:
    configure(home, '[kinds."web.hook"]\ncommand = ["true"]\nqueue_cap = 20\n')
    answers = storm([["enqueue", "web.hook", "--json"]] * STORM)
    assert answers == {(0, None): 20, (75, "kind_queue_full"): STORM - 20}
    assert rows(home, "SELECT state, count(*) FROM jobs GROUP BY state") == [("queued", 20)]
    assert rows(home, "SELECT reason, kind, tenant, count FROM refusals") == [
        ("kind_queue_full", "web.hook", "default", STORM - 20)
    ]
    status = json.loads(clawq("status", "--json").stdout)
    assert [(row["reason"], row["count"]) for row in status["refused"]] == [("kind_queue_full", STORM - 20)]


@pytest.mark.sized
def test_all_at_once_pass_no_cap_by_one(home: Home) -> None:
    room, tenants_room = sized(30, 60), sized(10, 25)
    configure(
        home,
        f"""
        [limits]
        max_queued = {room}
        max_queued_per_tenant = {tenants_room}
        max_held = 5
        [kinds.k]
        queue_cap = 8
        [kinds.n]
        queue_cap = 6
        on_full = "drop_oldest"
        """,
    )
    shapes: list[list[str]] = [
        ["--tenant", "a"],
        ["--tenant", "b", "k"],
        ["--tenant", "c", "--hold"],
        ["--tenant", "d", "--band", "critical"],
        ["--tenant", "e", "n"],
    ]
    answers = storm([["enqueue", "--json", *shapes[n % 5], "--", "true"] for n in range(STORM)])
    waiting = dict(
        rows(home, "SELECT tenant, count(*) FROM jobs WHERE state IN ('queued', 'held') GROUP BY tenant")
    )
    # Each tenant's met the cap that is its own; all of these together would be more than there is room for.
    assert waiting["b"] <= 8
    assert waiting["c"] <= 5
    assert waiting["e"] <= 6
    assert max(waiting.values()) <= tenants_room
    assert room * 0.9 <= sum(waiting.values()) <= room
    refused = sum(count for (count,) in rows(home, "SELECT count FROM refusals"))
    assert answers.total() == STORM
    assert refused == STORM - answers[0, None]


def test_a_dropped_job_says_what_happened_to_it(home: Home) -> None:
    configure(home, '[kinds.k]\ncommand = ["true"]\nqueue_cap = 1\non_full = "drop_oldest"\n')
    first = answer("enqueue", "k")["job_id"]
    assert answer("enqueue", "k")["outcome"] == "queued"
    shown = json.loads(clawq("show", str(first), "--json").stdout)
    assert (shown["job"]["state"], shown["events"][-1]["reason"]) == ("cancelled", "dropped")
    assert "since its kind was full and a newer job came" in clawq("show", str(first)).stdout


def test_a_coalesced_job_is_a_quiet_duplicate(home: Home) -> None:
    configure(home, '[kinds.k]\ncommand = ["true"]\nqueue_cap = 1\non_full = "coalesce"\n')
    first = answer("enqueue", "k", "--payload", '{"a": 1}')
    again = answer("enqueue", "k", "--payload", '{"a": 1}')
    assert (again["outcome"], again["job_id"], again["state"]) == ("duplicate", first["job_id"], "queued")
    assert clawq("enqueue", "k", "--payload", '{"a": 1}').stdout == ""
    assert answer("enqueue", "k", "--payload", '{"a": 2}', code=75)["reason"] == "kind_queue_full"


HEAVY = """
[kinds.heavy]
command = ["true"]
on_busy = "degrade"
degrade_to = "light"
[kinds.light]
command = ["true"]
"""


def test_a_degraded_job_says_so(home: Home) -> None:
    configure(home, HEAVY)
    done = answer("enqueue", "heavy")
    assert (done["outcome"], done["degraded"]) == ("queued", True)
    assert json.loads(clawq("show", "1", "--json").stdout)["job"]["kind"] == "light"
    assert "degraded from heavy" in clawq("show", "1").stdout
    quiet = clawq("enqueue", "heavy")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    ours, theirs = pty.openpty()
    subprocess.run([*CLAWQ, "enqueue", "heavy"], stdout=theirs, check=True)
    os.close(theirs)
    told = os.read(ours, 1000).decode()
    os.close(ours)
    assert told == "job 3 queued, as the lighter kind that it degrades to\r\n"
    done = clawq("enqueue", "heavy", "--dry-run")
    assert done.stdout == "would be queued, as the lighter kind that it degrades to\n"


def test_a_lighter_kind_that_cannot_run_is_found_before_it_is_needed(home: Home) -> None:
    configure(home, HEAVY.replace('[kinds.light]\ncommand = ["true"]', "[kinds.light]"))
    done = clawq("enqueue", "heavy", code=2)
    assert "kind 'light', which 'heavy' degrades to, has no command: give it one" in done.stderr
    configure(
        home, HEAVY.replace('[kinds.light]\ncommand = ["true"]', '[kinds.light]\ncommand = ["nowhere"]')
    )
    assert "no executable 'nowhere'" in clawq("enqueue", "heavy", code=2).stderr


def test_work_that_may_not_wait_beside_a_supervisor(fleet: Fleet) -> None:
    fleet.configure('[limits]\nmax_running = 1\n[bands.interactive]\non_busy = "reject"\n')
    with fleet.supervised():
        chat = answer("enqueue", "--band", "interactive", "--", "sh", "-c", "sleep 60")
        assert chat["outcome"] == "admitted"
        fleet.until_state(chat["job_id"], "running")
        refused = answer("enqueue", "--band", "interactive", "--", "true", code=75)
        assert (refused["reason"], refused["job_id"], refused["safe_to_retry"]) == (
            "over_capacity",
            None,
            True,
        )
        assert refused["retry_after_s"] >= 1
        fleet.clawq("cancel", chat["job_id"])
        fleet.until_state(chat["job_id"], "cancelled")
        # Admitted, and then a person pauses everything before it starts.
        fleet.clawq("pause", "--band", "interactive")
        fleet.clawq("resume", "--band", "interactive")
        again = answer("enqueue", "--band", "interactive", "--", "true")
        assert again["outcome"] == "admitted"
        fleet.until_state(again["job_id"], "succeeded")


def test_admitted_work_that_does_not_start_is_expired(fleet: Fleet) -> None:
    fleet.configure('[bands.interactive]\non_busy = "reject"\n')
    with fleet.supervised():
        late = answer("enqueue", "--band", "interactive", "--delay", "1s", "--", "true")["job_id"]
        fleet.clawq("pause", "--band", "interactive")
        assert fleet.until_state(late, "expired") == "expired"
    shown = fleet.clawq("show", late).stdout
    assert "not started within 5 s, and its on_busy is reject: it may not wait" in " ".join(shown.split())
    assert fleet.json("show", late)["events"][-1]["reason"] == "busy"


# ---------------------------------------------------------------- observing


def test_observing_lets_the_storm_in_and_tells_what_it_would_have_done(home: Home) -> None:
    configure(home, 'mode = "observe"\n[kinds."web.hook"]\ncommand = ["true"]\nqueue_cap = 2\n')
    for number in range(1, 6):
        assert answer("enqueue", "web.hook")["job_id"] == number
    assert rows(home, "SELECT stage, reason, kind, tenant, count FROM observed") == [
        ("enqueue", "kind_queue_full", "web.hook", "default", 3)
    ]
    assert rows(home, "SELECT * FROM refusals") == []
    answer("enqueue", "web.hook", "--dry-run")
    assert rows(home, "SELECT count FROM observed") == [(3,)]
    assert answer("enqueue", "web.hook", "--deadline", "0s", code=65)["reason"] == "deadline_passed"


# ---------------------------------------------------------------- throttle and spend


def test_a_throttled_resource_rests_for_everybody(fleet: Fleet) -> None:
    with fleet.supervised():
        done = fleet.json("throttle", "shell", "--for", "1h")
        assert (done["resource"], 3_590 <= done["cooldown_s"] <= 3_600) == ("shell", True)
        job_id = answer("enqueue", "--needs", "shell", "--", "true")
        assert job_id["outcome"] == "queued"
        until(lambda: fleet.json("why", job_id["job_id"])["blocked_by"][0]["reason"] == "cooldown:shell")
        assert fleet.json("throttle", "shell", "--for", "0") == {
            "resource": "shell",
            "until": None,
            "cooldown_s": None,
        }
        fleet.until_state(job_id["job_id"], "succeeded")


def test_an_agent_tells_what_it_spends_and_who_needs_a_rest(fleet: Fleet) -> None:
    fleet.configure("[budgets.tokens]\nlimit = 100\nper = '1h'\n")
    out = fleet.scratch / "out"
    with fleet.supervised():
        job_id = fleet.script(
            f'exec >{out} 2>&1; q() {{ {sys.executable} -m clawq "$@"; echo $?; }};'
            "q spend tokens 60; q spend tokens 160 --json; q throttle browser --for 5m;"
            "CLAWQ_TOKEN=1; q spend tokens 170"
        )
        fleet.until_state(job_id, "succeeded", "dead")
    said = out.read_text().splitlines()
    assert said[0] == "0"
    overdrawn = json.loads(next(line for line in said if line.startswith("{")))
    assert {key: overdrawn[key] for key in ("budget", "recorded", "used", "limit", "overdrawn")} == {
        "budget": "tokens",
        "recorded": 160,
        "used": 160,
        "limit": 100,
        "overdrawn": True,
    }
    assert [line for line in said if line.isdigit()] == ["0", "75", "0", "77"]
    errors = [line for line in said if line.startswith("clawq: ")]
    assert errors[0].startswith("clawq: budget 'tokens' is overdrawn, 160 of 100 (recorded): slow down;")
    assert errors[1] == (
        f"clawq: job {job_id} is no longer this agent's: stop: what it does now counts for nothing"
    )
    assert rows(fleet.home, "SELECT resource FROM cooldowns") == [("browser",)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["throttle"], "RESOURCE is missing: clawq throttle RESOURCE; `clawq throttle --help` tells more"),
        (["throttle", "shell"], "--for is missing: clawq throttle RESOURCE --for 5m"),
        (["throttle", "shell", "x", "--for", "1m"], "unexpected 'x': clawq throttle RESOURCE;"),
        (["throttle", "shell", "--fr", "1m"], "unknown option '--fr': did you mean --for? `clawq throttle"),
        (["throttle", "shel", "--for", "1m"], "no resource 'shel' is configured: did you mean shell?"),
        (["throttle", "shell", "--for", "25h"], "a rest is at most 1d: throttle it again when that is over"),
        (["throttle", "shell", "--for", "soon"], "'soon' is not a duration: write 90s, 10m, 2h or 1d"),
        (["spend", "tokens"], "N is missing: clawq spend BUDGET N; `clawq spend --help` tells more"),
        (["spend", "tokens", "1.5"], "'1.5': a whole number from 0 to 1000000000000000 is needed"),
        (
            ["spend", "tokens", "5"],
            "this is not inside a job: `clawq spend` is for what `clawq run` has started",
        ),
    ],
)
def test_what_is_wrong_is_one_line(home: Home, words: list[str], message: str) -> None:
    done = clawq(*words, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(f"clawq: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["throttle", "spend"])
def test_their_help_is_plain_text_for_any_terminal(home: Home, verb: str) -> None:
    text = clawq(verb, "--help", env={"CLAWQ_HOME": home.data}).stdout
    assert text.startswith(f"Usage: clawq {verb} ")
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 79
    assert not os.path.exists(home.db)


def test_throttling_is_silent_unless_somebody_looks(home: Home) -> None:
    done = clawq("throttle", "shell", "--for", "5m")
    assert (done.stdout, done.stderr) == ("", "")
