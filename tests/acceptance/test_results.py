"""What agents say of their own end, and what becomes of it: real agents, a real supervisor."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from clawq.paths import Home
from clawq.store.connection import Immediate, open_db
from tests.acceptance.test_enqueue_imports import ALWAYS, imported
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.sizes import sized
from tests.waiting import until

ME = shlex.join(CLAWQ)
FIXTURES = ROOT / "tests" / "fixtures"
PROVIDER = "[resources.api]\nlimit = 3\nprovider = true\n"
QUICK = '[bands.normal]\nbackoff = "0s"\n'
"""A retry comes at once."""


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def change(fleet: Fleet, sql: str, *values: object) -> None:
    """What only time would change otherwise."""
    db = open_db(fleet.home)
    try:
        with Immediate(db):
            db.execute(sql, values)
    finally:
        db.close()


def last(fleet: Fleet, job_id: int) -> dict[str, Any]:
    attempts: list[dict[str, Any]] = fleet.json("show", job_id)["attempts"]
    return attempts[-1]


def fail(*words: str) -> str:
    return f"{ME} fail {shlex.join(words)}"


class TestFail:
    def test_what_the_agent_tells_comes_before_its_exit_code(self, fleet: Fleet) -> None:
        told = fail("--class", "permanent", "--reason", "gone", "-m", "--the site\x1b[31m is gone")
        job_id = fleet.script(f"{told}; echo all is well; exit 0")
        fleet.run_until_idle()
        job = fleet.job(job_id)
        assert (job["state"], job["error_class"], job["exit_code"]) == ("dead", "permanent", 0)
        assert job["last_error"] == "--the site is gone"
        assert last(fleet, job_id)["outcome"] == "failed"

    def test_a_message_that_was_cut_within_a_letter_is_told_all_the_same(self, fleet: Fleet) -> None:
        job_id = fleet.script(f"{ME} fail --class permanent -m \"$(printf 'caf\\303')\"")
        fleet.run_until_idle()
        assert fleet.job(job_id)["last_error"] == "caf?"

    def test_reasons_of_retries_are_summed(self, fleet: Fleet) -> None:
        fleet.configure(QUICK)
        note = fleet.scratch / "n"
        script = f'n=$(cat "{note}" 2>/dev/null || echo 0); echo $((n + 1)) > "{note}"; case $n in '
        flaky, limited = fail("--class", "transient", "--reason", "flaky"), fail("--class", "rate_limit")
        script += f"0|1) {flaky};; 2) {limited};; esac"
        job_id = fleet.script("--max-attempts", "9", script)
        fleet.run_until_idle()
        shown = fleet.json("show", job_id)
        assert (shown["job"]["state"], shown["retries"]) == ("succeeded", {"flaky": 2, "rate_limit": 1})
        assert "tried again for 2 flaky, 1 rate_limit" in fleet.clawq("show", job_id).stdout

    def test_an_attempt_that_is_over_tells_nothing(self, fleet: Fleet) -> None:
        job_id = fleet.script(f'echo "$CLAWQ_JOB_ID $CLAWQ_TOKEN" > "{fleet.scratch}/me"')
        fleet.run_until_idle()
        number, token = (fleet.scratch / "me").read_text().split()
        assert int(number) == job_id
        env = os.environ | {"PYTHONPATH": str(ROOT), "CLAWQ_JOB_ID": number, "CLAWQ_TOKEN": token}
        words = [*CLAWQ, "fail", "--class", "transient"]
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (77, "")
        assert done.stderr == (
            f"clawq: job {job_id} is no longer this agent's: stop: what it does now counts for nothing\n"
        )
        assert last(fleet, job_id)["outcome"] == "succeeded"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--class", "transient"], "this is not inside a job: `clawq fail` is for what"),
            ([], "--class is missing: one of transient, permanent, rate_limit"),
            (["--class", "ratelimit"], "--class 'ratelimit': did you mean rate_limit? one of"),
            (["--class", "permanent", "--reason", "two words"], "--reason 'two words': one word is needed"),
            (["--class", "permanent", "--retry-after", "soon"], "soon"),
            (["--class", "permanent", "-x"], "unknown option '-x'"),
            (["--class", "permanent", "-m"], "--message needs a value"),
        ],
    )  # fmt: skip
    def test_what_is_wrong_is_said_in_a_line(self, fleet: Fleet, words: list[str], said: str) -> None:
        done = fleet.clawq("fail", *words, code=2)
        assert said in done.stderr
        assert done.stderr.count("\n") == 1

    def test_a_resource_that_does_not_exist_is_the_agents_mistake(self, fleet: Fleet) -> None:
        fleet.configure(PROVIDER)
        job_id = fleet.script(f"{fail('--class', 'rate_limit', '--resource', 'apy')}; exit $?")
        fleet.run_until_idle()
        assert "no resource 'apy' is configured: did you mean api?" in last(fleet, job_id)["error"]
        assert fleet.job(job_id)["error_class"] == "permanent"

    def test_it_is_as_cheap_to_start_as_enqueue(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        Fleet(home).clawq("enqueue", "--", "true")
        monkeypatch.setenv("CLAWQ_JOB_ID", "1")
        monkeypatch.setenv("CLAWQ_TOKEN", "1")
        loaded = imported("fail", "--class", "transient", "--reason", "x", "-m", "y", code=77)
        own = {
            "clawq.cli.fail",
            "clawq.verbs",
            "clawq.inside",
            "clawq.lease",
            "clawq.store.told",
            "clawq.poke",
        }
        assert loaded - own - {"_socket"} <= ALWAYS | {"clawq.store.draft"}

    def test_help_and_completion_know_it(self, fleet: Fleet) -> None:
        text = fleet.clawq("fail", "--help").stdout
        assert "Usage: clawq fail [OPTIONS]" in text
        assert "  -m, --message TEXT" in text
        assert "fail" in fleet.clawq("--help").stdout


class TestResultFile:
    def test_it_is_kept_as_it_is_and_its_class_counts(self, fleet: Fleet) -> None:
        kept = fleet.script('echo \'{"pages": [1, 2], "changed_at": 5}\' > "$CLAWQ_RESULT_FILE"')
        failed = fleet.script(
            'echo \'{"error_class": "permanent", "error": "no such page"}\' > "$CLAWQ_RESULT_FILE"'
        )
        fleet.run_until_idle()
        shown = fleet.json("show", kept)
        assert (shown["job"]["state"], shown["result"]) == ("succeeded", {"pages": [1, 2], "changed_at": 5})
        assert '{"pages": [1, 2], "changed_at": 5}' in fleet.clawq("show", kept).stdout
        job = fleet.job(failed)
        assert (job["state"], job["exit_code"], job["last_error"]) == ("dead", 0, "no such page")
        assert not [name for name in os.listdir(fleet.home.run) if name.endswith(".result")]

    @pytest.mark.parametrize(
        ("makes", "note"),
        [
            ('truncate -s 1G "$F"', "1073741824 bytes, at most 65536 are"),
            ('mkfifo "$F"', "it is not a plain file"),
            ('mkdir "$F"', "it is not a plain file"),
            ('ln -s /dev/zero "$F"', "it is a link"),
            ('head -c 9999 /dev/urandom > "$F"', "it is not JSON"),
            ('echo \'{"error_class": "lost"}\' > "$F"', "error_class is none of"),
        ],
    )
    def test_whatever_lies_there_is_said_and_never_fatal(self, fleet: Fleet, makes: str, note: str) -> None:
        job_id = fleet.script(f'F="$CLAWQ_RESULT_FILE"; {makes}')
        fleet.run_until_idle()
        job, attempt = fleet.job(job_id), last(fleet, job_id)
        assert (job["state"], job["last_error"], attempt["outcome"]) == ("succeeded", None, "succeeded")
        assert note in attempt["error"]
        assert [name for name in os.listdir(fleet.home.run) if ".result" in name] == []

    def test_nothing_that_one_writes_keeps_the_others_waiting(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.c]\nclassify = "claude"\n')
        says = (
            """printf '{"error_class": "permanent", "error": "cut in \\\\ud83d"}' > "$CLAWQ_RESULT_FILE" """
        )
        half = fleet.script(says)
        line = json.dumps(
            {"type": "result", "is_error": True, "result": f"try again in {'9' * 400} hours \ud83d"}
        )
        endless = fleet.enqueue("c", "--max-attempts", "1", "--", "printf", "%s", line)
        number = "9" * 30
        marks = f'printf "r {number}\\ne {number}\\n" >> "$CLAWQ_HOME/run/$CLAWQ_TOKEN.attempt"'
        marked = fleet.script(marks)
        fleet.run_until_idle()
        assert fleet.job(half)["last_error"] == "cut in \ufffd"
        assert fleet.job(endless)["last_error"].endswith("9" * 10)
        assert fleet.job(marked)["state"] == "succeeded"


class TestReaders:
    def test_a_weekly_limit_with_exit_0_lets_the_provider_rest_and_costs_nothing(self, fleet: Fleet) -> None:
        fleet.configure(f'{PROVIDER}[kinds.c]\nclassify = "claude"\nneeds = ["api"]\n')
        recorded = (FIXTURES / "claude" / "weekly-limit-stream.jsonl").read_text()
        in_five_days = round(time.time()) + 5 * 86_400
        output = fleet.scratch / "output"
        output.write_text(recorded.replace(str(1_790_000_000 + 5 * 86_400), str(in_five_days)))
        job_id = fleet.enqueue("c", "--", "cat", output)
        with fleet.supervised():
            fleet.until_state(job_id, "scheduled")
            attempt, job = last(fleet, job_id), fleet.job(job_id)
            rest = fleet.json("status")["resources"]["api"]
        assert (attempt["outcome"], attempt["exit_code"], attempt["resource"]) == ("rate_limited", 0, "api")
        assert attempt["error"].startswith("You've hit your weekly limit")
        assert job["attempts"] == 0
        assert 6 * 3600 - 60 < rest["cooldown_s"] <= 6 * 3600
        change(fleet, "UPDATE jobs SET accepted_at = accepted_at - 79200000, run_after = 0")
        change(fleet, "UPDATE cooldowns SET until = 0")
        fleet.run_until_idle()
        job = fleet.job(job_id)
        assert (job["state"], job["attempts"], job["error_class"]) == ("dead", 0, "rate_limit")
        assert fleet.json("show", job_id)["events"][-1]["reason"] == "max_age"

    def test_without_a_provider_a_weekly_limit_is_no_574_retries_either(self, fleet: Fleet) -> None:
        fleet.configure(f'{QUICK}[kinds.c]\nclassify = "codex"\n')
        job_id = fleet.enqueue("c", "--", "cat", FIXTURES / "codex" / "limit-in-days.jsonl")
        fleet.run_until_idle()
        shown = fleet.json("show", job_id)
        assert (shown["job"]["state"], len(shown["attempts"])) == ("dead", 1)
        assert shown["events"][-1]["reason"] == "max_age"

    def test_a_success_that_talks_of_limits_is_one(self, fleet: Fleet) -> None:
        fleet.configure(
            '[kinds.c]\nclassify = "claude"\nerrors = [{ contains = "usage limit", class = "rate_limit" }]\n'
        )
        job_id = fleet.enqueue("c", "--", "cat", FIXTURES / "claude" / "success-that-talks-of-limits.json")
        fleet.run_until_idle()
        assert fleet.state(job_id) == "succeeded"

    def test_errors_of_a_kind_are_looked_for_in_its_output(self, fleet: Fleet) -> None:
        fleet.configure(
            f'{PROVIDER}[kinds.c]\nerrors = [{{ contains = "no such page", class = "permanent" }},\n'
            '  { contains = "quota exceeded", class = "rate_limit", reason = "quota", resource = "api" }]\n'
        )
        gone = fleet.enqueue("c", "--", "sh", "-c", "echo 404: No such page; exit 1")
        limited = fleet.enqueue("c", "--needs", "api", "--", "sh", "-c", "echo Quota exceeded; exit 3")
        with fleet.supervised():
            assert fleet.until_state(gone, "dead")
            fleet.until_state(limited, "scheduled")
        assert fleet.job(gone)["last_error"] == "exit 1: 404: No such page"
        shown = fleet.json("show", limited)
        assert (shown["job"]["attempts"], shown["retries"]) == (0, {"quota": 1})
        assert shown["attempts"][0]["error"] == "exit 3: Quota exceeded"


class TestProviders:
    def test_one_meets_a_limit_and_nobody_starts_until_a_probe_has_passed(self, fleet: Fleet) -> None:
        fleet.configure(PROVIDER)
        go = {name: fleet.scratch / f"go-{name}" for name in "bcd"}
        with fleet.supervised():
            limit = fail("--class", "rate_limit", "--retry-after", "1h")
            been = fleet.scratch / "been"
            first = fleet.script("--needs", "api", f'[ -e "{been}" ] || {{ touch "{been}"; {limit}; }}')
            fleet.until_state(first, "scheduled")
            others = [
                fleet.script("--needs", "api", f'until [ -e "{path}" ]; do sleep 0.05; done')
                for path in go.values()
            ]
            aside = fleet.script("echo not of that provider")
            fleet.until_state(aside, "succeeded")
            assert [fleet.state(job_id) for job_id in others] == ["queued"] * 3
            assert "cooldown:api" in str(fleet.json("why", others[0])["blocked_by"])
            change(fleet, "UPDATE cooldowns SET until = set_at")
            fleet.until_state(others[0], "running")
            change(fleet, "UPDATE jobs SET run_after = 0 WHERE state = 'scheduled'")
            until(lambda: fleet.state(first) == "queued")
            assert [fleet.state(job_id) for job_id in others[1:]] == ["queued"] * 2
            go["b"].touch()
            fleet.until_state(others[0], "succeeded")
            fleet.until_state(first, "succeeded")
            for job_id in others[1:]:
                fleet.until_state(job_id, "running")
            go["c"].touch()
            go["d"].touch()

    def test_a_probe_that_meets_the_limit_again_lets_nobody_in(self, fleet: Fleet) -> None:
        fleet.configure(PROVIDER)
        with fleet.supervised():
            limited = [fleet.script("--needs", "api", fail("--class", "rate_limit"))]
            fleet.until_state(limited[0], "scheduled")
            limited.append(fleet.script("--needs", "api", fail("--class", "rate_limit")))
            change(fleet, "UPDATE cooldowns SET until = set_at")
            fleet.until_state(limited[1], "scheduled")
            rest = fleet.json("status")["resources"]["api"]
            assert rest["cooldown"] == "resting"
            assert 50 < rest["cooldown_s"] <= 60, "the second in a row"
            assert [fleet.job(job_id)["attempts"] for job_id in limited] == [0, 0]

    @pytest.mark.sized
    def test_ten_limits_are_free_and_then_they_are_charged(self, fleet: Fleet) -> None:
        met_before = sized(8, 0)
        fleet.configure(PROVIDER)
        job_id = fleet.script("--needs", "api", "--max-attempts", "2", fail("--class", "rate_limit"))
        change(fleet, f"UPDATE jobs SET limits_met = {met_before}")
        with fleet.supervised():
            for number in range(1, 13 - met_before):
                until(lambda number=number: len(fleet.json("show", job_id)["attempts"]) == number)  # type: ignore[misc]
                state = fleet.until_state(job_id, "scheduled", "dead")
                charged = fleet.job(job_id)["attempts"]
                assert (number, charged, state) == (
                    number,
                    max(0, met_before + number - 10),
                    "dead" if met_before + number == 12 else "scheduled",
                )
                if state == "scheduled":
                    fleet.clawq("throttle", "api", "--for", "0")
                    change(fleet, "UPDATE jobs SET run_after = 0 WHERE state = 'scheduled'")
        assert fleet.json("show", job_id)["retries"] == {"rate_limit": 11 - met_before}
        assert f"tried again for {11 - met_before} rate_limit" in fleet.clawq("show", job_id).stdout


class TestForks:
    def test_a_failed_fork_closes_the_gate_and_costs_nothing(self, fleet: Fleet) -> None:
        fleet.configure('[host]\nretry_after = "2s"\n')
        been = fleet.scratch / "been"
        script = f'[ -e "{been}" ] && exit 0; touch "{been}"; echo "sh: 1: Cannot fork" >&2; exit 2'
        with fleet.supervised():
            job_id = fleet.script(script)
            until(been.exists)
            until(lambda: fleet.json("show", job_id)["retries"] == {"fork_failed": 1})
            other = fleet.script("true")
            row = until(lambda: fleet.json("why", other)["blocked_by"])[0]
            assert row["reason"] == "spawn_failed"
            fleet.until_state(other, "succeeded")
            fleet.until_state(job_id, "succeeded")
        shown = fleet.json("show", job_id)
        assert [each["outcome"] for each in shown["attempts"]] == ["failed", "succeeded"]
        assert shown["job"]["attempts"] == 1, "the one that succeeded"


def test_what_was_told_outlives_the_supervisor(fleet: Fleet) -> None:
    """Killed after `clawq fail` and before the end was recorded: the next one settles by what was told."""
    go = fleet.scratch / "go"
    told = fail("--class", "permanent", "-m", "no such page")
    first = fleet.start()
    job_id = fleet.script(f'{told}; touch "{go}.told"; until [ -e "{go}" ]; do sleep 0.05; done')
    until(Path(f"{go}.told").exists)
    first.kill()
    first.wait()
    go.touch()
    with fleet.supervised():
        fleet.until_state(job_id, "dead")
    assert fleet.job(job_id)["last_error"] == "no such page"
