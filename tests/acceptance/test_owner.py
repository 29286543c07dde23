"""The owner's commands as they are typed: real processes, real queues, a supervisor where it is the point."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from clawq import states as job
from clawq.paths import Home
from clawq.store import told
from clawq.store.connection import open_db
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.moves import put_in
from tests.waiting import until

BARE = ["env", "-i", f"PYTHONPATH={ROOT}"]
"""What cron gives, and less."""

NASTY = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\x1b[0m [bold]x[/bold] \u202egnp.exe \u05e9\u05dc\u05d5\u05dd"


def keys(text: str) -> set[str]:
    return set(text.split())


JOB_KEYS = keys(
    "id kind state tenant band priority attempts max_attempts dedupe_key parent_id root_id run_after stale_at"
    " deadline_at created_at started_at ended_at exit_code last_error error_class command cwd needs"
)
STATUS_KEYS = keys(
    "supervisor counts depth running waiting_on refused ended deferred resources budgets observed host alerts"
)
HOST_KEYS = keys("user_procs max_user_procs tasks free_mb pressure free_disk_mb")
RUNNING_KEYS = keys("job_id kind state tenant attempt pid age_s lease_left_s beat_age_s quiet_s needs")
ATTEMPT_KEYS = keys(
    "number started_at ended_at outcome exit_code signal error_class error resource peak_mb peak_procs log"
)
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def fill(home: Home) -> dict[str, int]:
    """A queue with a job in every state; {state: id}."""
    db = open_db(home)
    ids = {state: put_in(db, state, 1_700_000_000_000, needs="browser") for state in job.STATES}
    db.close()
    return ids


class TestWithNothingThere:
    @pytest.mark.parametrize("command", [[], ["status"], ["list"], ["dead"], ["unknown"], ["prune"]])
    def test_looking_makes_nothing(self, fleet: Fleet, command: list[str]) -> None:
        fleet.clawq(*command)
        assert not os.path.exists(fleet.home.data)

    def test_it_says_that_nothing_was_ever_enqueued(self, fleet: Fleet) -> None:
        assert "nothing was ever enqueued here" in fleet.clawq("status").stdout
        assert fleet.clawq().stdout.splitlines()[3:] == fleet.clawq("status").stdout.splitlines()[3:]
        assert fleet.clawq("list").stderr == "clawq: no jobs yet\n"

    @pytest.mark.parametrize("command", ["list", "dead", "unknown"])
    def test_lists_are_empty_arrays(self, fleet: Fleet, command: str) -> None:
        assert fleet.json(command) == []

    @pytest.mark.parametrize(
        "command",
        [
            "show",
            "why",
            "logs",
            "wait",
            "cancel",
            "retry",
            "approve",
            "deny",
            "edit --priority 1",
            "reconcile --failed",
        ],
    )
    def test_there_is_no_such_job(self, fleet: Fleet, command: str) -> None:
        done = fleet.clawq(*command.split(), "7", code=1)
        assert (done.stdout, done.stderr) == ("", "clawq: no job 7: `clawq list` shows the jobs there are\n")
        assert not os.path.exists(fleet.home.data)


class TestJson:
    def test_what_prints_a_file_gives_it_as_a_text(self, fleet: Fleet) -> None:
        crontab = fleet.scratch / "crontab"
        crontab.write_text("0 7 * * * digest\n@reboot daemon\n")
        told = fleet.json("crontab", "-f", crontab)
        assert told["text"] == fleet.clawq("crontab", "-f", crontab).stdout
        assert (told["wrapped"], [row["line"] for row in told["left"]]) == (1, [2])
        told = fleet.json("service", "show", "--for", "launchd")
        assert (told["manager"], told["text"]) == (
            "launchd",
            fleet.clawq("service", "show", "--for", "launchd").stdout,
        )

    def test_stop_tells_whom_it_stopped(self, fleet: Fleet) -> None:
        assert fleet.json("stop") == {"was_running": False, "pid": None}
        supervisor = fleet.start()
        assert fleet.json("stop") == {"was_running": True, "pid": supervisor.pid}
        assert supervisor.wait(20) == 0

    def test_status(self, fleet: Fleet) -> None:
        fill(fleet.home)
        found = fleet.json("status")
        assert set(found) == STATUS_KEYS
        assert set(found["supervisor"]) == {"running", "pid", "since", "mode", "last_tick_age_s"}
        assert found["counts"] == dict.fromkeys(job.STATES, 1)
        assert set(found["depth"][0]) == {"tenant", "band", "kind", "queued", "oldest_age_s"}
        assert set(found["running"][0]) == RUNNING_KEYS
        assert found["waiting_on"] == [{"reason": "no_supervisor", "jobs": 1, "retry_after_s": None}]
        assert found["resources"]["browser"] == {
            "in_use": 2,  # the one that waits holds none
            "limit": 2,
            "cooldown_s": None,
            "cooldown": None,
        }
        assert set(found["host"]) == HOST_KEYS
        assert found["host"]["free_disk_mb"] > 0
        assert found["host"]["user_procs"] > 0
        assert found["host"]["free_mb"] > 0
        assert found["host"]["pressure"] in ("normal", "warn", "critical", None)
        assert found["budgets"] == {}
        assert found["observed"] == {"since": None, "enqueue": [], "start": []}
        assert [alert["reason"] for alert in found["alerts"]] == ["no_supervisor", "unknown", "held"]

    def test_show(self, fleet: Fleet) -> None:
        ids = fill(fleet.home)
        found = fleet.json("show", ids[job.DEAD])
        assert set(found) == {
            "job", "attempts", "deferrals", "retries", "events", "effects", "children", "result",
        }  # fmt: skip
        assert set(found["job"]) == JOB_KEYS
        assert set(found["attempts"][0]) == ATTEMPT_KEYS
        assert [set(event) for event in found["events"]] == [{"at", "from", "to", "reason"}] * 4
        assert (found["job"]["band"], found["job"]["needs"]) == ("normal", ["browser"])
        for moment in (found["job"]["created_at"], found["job"]["ended_at"], found["events"][0]["at"]):
            assert ISO.fullmatch(moment), moment
        assert os.path.dirname(found["attempts"][0]["log"]) == fleet.home.logs

    @pytest.mark.parametrize("state", job.STATES)
    def test_why(self, fleet: Fleet, state: str) -> None:
        found = fleet.json("why", fill(fleet.home)[state])
        assert list(found) == ["job_id", "state", "blocked_by", "deferrals"]
        assert found["state"] == state
        for row in found["blocked_by"]:
            assert list(row) == ["reason", "measured", "limit", "since", "clears_when"]
        expected = {
            job.QUEUED: ["no_supervisor"],
            job.SCHEDULED: ["no_supervisor", "not_due"],
            job.WAITING: ["no_supervisor", "children"],
            job.HELD: ["held"],
            job.UNKNOWN: ["unknown"],
            job.WAITING: ["no_supervisor", "children"],
        }
        assert [row["reason"] for row in found["blocked_by"]] == expected.get(state, [])

    def test_lists_are_job_rows(self, fleet: Fleet) -> None:
        ids = fill(fleet.home)
        assert all(set(row) == JOB_KEYS for row in fleet.json("list"))
        assert [row["id"] for row in fleet.json("list", "--limit", "2")] == sorted(ids.values())[:-3:-1]
        assert [row["id"] for row in fleet.json("dead")] == [ids[job.DEAD]]
        assert [row["id"] for row in fleet.json("unknown")] == [ids[job.UNKNOWN]]
        for state in job.STATES:
            assert [row["id"] for row in fleet.json("list", "--state", state)] == [ids[state]]
        assert fleet.json("list", "--tenant", "nobody") == []

    def test_changes_answer_for_each_job(self, fleet: Fleet) -> None:
        ids = fill(fleet.home)
        assert fleet.json("cancel", ids[job.QUEUED], ids[job.RUNNING], ids[job.DEAD], 99, code=1) == [
            {"job_id": ids[job.QUEUED], "ok": True, "state": "cancelled", "reason": None},
            {"job_id": ids[job.RUNNING], "ok": True, "state": "running", "reason": None},
            {"job_id": ids[job.DEAD], "ok": False, "state": "dead", "reason": "wrong_state"},
            {"job_id": 99, "ok": False, "state": None, "reason": "no_such_job"},
        ]

    def test_the_rest(self, fleet: Fleet) -> None:
        assert fleet.json("pause", "--band", "bulk") == {"scope": "band", "name": "bulk", "changed": True}
        assert fleet.json("resume", "--band", "bulk")["changed"] is True
        assert fleet.json("resume")["changed"] is False
        assert set(fleet.json("prune", "--dry-run")) == {
            "jobs",
            "orphans",
            "crowded_logs",
            "too_large_mb",
            "before_at",
            "dry_run",
        }


class TestChanges:
    def test_each_id_is_handled_and_each_problem_has_a_line(self, fleet: Fleet) -> None:
        ids = fill(fleet.home)
        done = fleet.clawq("retry", 99, ids[job.DEAD], ids[job.QUEUED], ids[job.EXPIRED], code=1)
        assert done.stdout.splitlines() == [
            f"job {ids[job.DEAD]}: queued again",
            f"job {ids[job.EXPIRED]}: queued again",
        ]
        queued = f"clawq: job {ids[job.QUEUED]} is queued"
        assert done.stderr.splitlines() == [
            "clawq: no job 99: `clawq list` shows the jobs there are",
            f"{queued}: only a job that is dead, expired or cancelled can be retried",
        ]

    def test_the_most_severe_code_wins(self, fleet: Fleet) -> None:
        dead = fill(fleet.home)[job.DEAD]
        fleet.configure("[limits]\nmax_queued = 1\n")
        done = fleet.clawq("retry", 99, dead, code=75)
        assert "the queue is full (3 wait of at most 1)" in done.stderr

    def test_a_wrong_id_among_them_changes_nothing(self, fleet: Fleet) -> None:
        queued = fill(fleet.home)[job.QUEUED]
        assert "is not a job number" in fleet.clawq("cancel", queued, "x", code=2).stderr
        assert fleet.state(queued) == job.QUEUED

    def test_approve_deny_and_reconcile(self, fleet: Fleet) -> None:
        ids = fill(fleet.home)
        assert fleet.clawq("approve", ids[job.HELD]).stdout == f"job {ids[job.HELD]}: approved, now queued\n"
        more = fill(fleet.home)
        assert fleet.clawq("deny", more[job.HELD]).stdout == f"job {more[job.HELD]}: denied\n"
        done = fleet.clawq("reconcile", ids[job.UNKNOWN], "--failed", "--note", f"no trace {NASTY}")
        assert done.stdout == f"job {ids[job.UNKNOWN]}: reconciled, now dead\n"
        error = fleet.job(ids[job.UNKNOWN])["last_error"]
        assert error.startswith("settled as failed: no trace red [bold]x[/bold] gnp.exe")
        for words in (["--failed", "--requeue"], []):
            assert "give one of" in fleet.clawq("reconcile", more[job.UNKNOWN], *words, code=2).stderr

    def test_edit(self, fleet: Fleet) -> None:
        queued = fill(fleet.home)[job.QUEUED]
        done = fleet.clawq(
            "edit", queued, "--priority", "-7", "--band", "bulk", "--delay", "2h", "--max-attempts", "9"
        )
        assert done.stdout == f"job {queued}: edited, now scheduled\n"
        row = fleet.job(queued)
        assert (row["priority"], row["band"], row["max_attempts"]) == (-7, "bulk", 9)
        fleet.clawq(
            "edit", queued, "--delay", "0s", "--timeout", "none", "--stale-after", "1h", "--deadline", "2h"
        )
        row = fleet.job(queued)
        assert row["state"] == "queued"
        assert row["stale_at"] < row["deadline_at"]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ([], "nothing to change"),
            (["--band", "bulkk"], "did you mean bulk?"),
            (["--priority", "high"], "whole number"),
            (["--at", "25:00"], "not a time of day"),
            (["--at", "12:00", "--delay", "1m"], "exclude each other"),
            (["--stale-after", "soon"], "duration"),
            (["--needs", "browser"], "there is no option '--needs'"),
        ],
    )
    def test_edit_says_what_is_wrong(self, fleet: Fleet, words: list[str], said: str) -> None:
        queued = fill(fleet.home)[job.QUEUED]
        assert said in fleet.clawq("edit", queued, *words, code=2).stderr
        assert fleet.state(queued) == "queued"

    def test_pauses(self, fleet: Fleet) -> None:
        queued = fleet.enqueue("--tenant", "acme", "--", "true")
        for words in (
            [],
            ["--tenant", "acme"],
            ["--kind", "default"],
            ["--resource", "shell"],
            ["--band", "normal"],
        ):
            assert fleet.clawq("pause", *words).stdout.endswith(": paused\n")
            assert fleet.clawq("pause", *words).stdout.endswith(": paused already\n")
        reasons = [row["clears_when"] for row in fleet.json("why", queued)["blocked_by"]]
        assert reasons[1:] == [
            "a person says `clawq resume`",
            "a person says `clawq resume --tenant acme`",
            "a person says `clawq resume --kind default`",
            "a person says `clawq resume --band normal`",
        ]
        alerts = [alert["reason"] for alert in fleet.json("status")["alerts"]]
        assert alerts == ["no_supervisor", *["paused"] * 5]
        done = fleet.clawq("resume")
        assert done.stdout == "everything: resumed\n"
        assert done.stderr == "clawq: still paused: tenant acme and 3 others; `clawq status` shows them\n"

    @pytest.mark.parametrize("verb", ["pause", "resume"])
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--kind", "defualt"], "there is no kind 'defualt': did you mean default?"),
            (["--resource", "browsr"], "did you mean browser?"),
            (["--band", "nrmal"], "did you mean normal?"),
            (["--kind", "default", "--band", "bulk"], "exclude each other"),
            (["--tenant", ""], "a name without control characters is needed"),
        ],
    )
    def test_pauses_of_what_there_is(self, fleet: Fleet, verb: str, words: list[str], said: str) -> None:
        assert said in fleet.clawq(verb, *words, code=2).stderr

    def test_a_rest_is_no_pause(self, fleet: Fleet) -> None:
        """Each says which it is and what ends it."""
        fleet.clawq("pause")
        db = open_db(fleet.home)
        now = time.time_ns() // 1_000_000
        told.cool(db, "browser", now + 3_600_000, 2_000, now)
        db.close()
        done = fleet.clawq("pause", "--resource", "browser")
        assert done.stdout == "resource browser: paused\n"
        assert re.fullmatch(
            r"clawq: resource browser rests until [-0-9: ]+ besides, which is no pause and ends by itself\n",
            done.stderr,
        )
        assert "browser 0/2 rests for 59m, paused" in fleet.clawq("status").stdout
        done = fleet.clawq("resume", "--resource", "browser")
        assert done.stdout == "resource browser: resumed\n"
        assert "which is no pause: `clawq throttle browser --for 0` ends that" in done.stderr
        assert fleet.json("status")["resources"]["browser"]["cooldown"] == "resting"
        assert fleet.clawq("resume", "--resource", "shell").stderr == "clawq: still paused: everything\n"

    def test_a_pause_outlives_its_kind_and_can_still_be_lifted(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.gone]\ncommand = ["true"]\n')
        fleet.clawq("pause", "--kind", "gone")
        fleet.configure("")
        assert fleet.clawq("resume", "--kind", "gone").stdout == "kind gone: resumed\n"

    def test_prune_takes_what_ended_long_ago_and_its_logs_only(self, fleet: Fleet) -> None:
        old = fill(fleet.home)
        young = fleet.script("exit 0")
        os.makedirs(fleet.home.logs, exist_ok=True)
        logs = {state: Path(fleet.home.logs) / f"{id}.1.{1_000 + id}.log" for state, id in old.items()}
        for path in logs.values():
            path.write_text("output")
        fleet.clawq("cancel", young)
        assert fleet.clawq("prune", "--dry-run").stdout == "4 jobs would be pruned\n"
        assert all(path.exists() for path in logs.values())
        assert fleet.clawq("prune").stdout == "4 jobs pruned\n"
        gone = {
            job.SUCCEEDED,
            job.DEAD,
        }  # the other ends have no attempt, so nothing of theirs is ours to delete
        assert {state for state, path in logs.items() if not path.exists()} == gone
        assert fleet.state(young) == "cancelled"
        assert fleet.clawq("prune", "--older-than", "0s", "--dry-run").stdout.splitlines() == [
            "1 job would be pruned",
            "5 logs of no attempt would be pruned",  # of the jobs that never ran
        ]
        assert fleet.clawq("prune", "--older-than", "0s").stdout.startswith("1 job pruned\n")
        assert "is not a duration" in fleet.clawq("prune", "--older-than", "old", code=2).stderr


class TestHostileText:
    """Nothing that agents or producers write steers the terminal, breaks a table or is taken for markup."""

    def test_in_every_page(self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
        db = open_db(fleet.home)
        long = "k" * 200
        for state in job.STATES:
            put_in(
                db,
                state,
                1_700_000_000_000,
                kind=NASTY,
                tenant=f"{NASTY}{long}",
                exclusive=NASTY,
                payload='{"a":"[b]"}',
                needs=NASTY,
                command=[NASTY],
                cwd=f"/{NASTY}",
            )
        db.execute("UPDATE jobs SET last_error = ?", (f"{NASTY}\n{long}",))
        db.execute("UPDATE attempts SET output_tail = ?, error = ?", (f"{NASTY}\n" * 9, NASTY))
        db.execute("INSERT INTO deferrals SELECT id, ?, 1, 1, 1 FROM jobs", (f"exclusive:{NASTY}",))
        ids = [id for (id,) in db.execute("SELECT id FROM jobs")]
        db.close()
        for words in (["status"], ["list"], ["dead"], ["unknown"], ["show", *ids], ["why", *ids]):
            for width in ("80", "140"):
                monkeypatch.setenv("COLUMNS", width)
                shown = fleet.clawq(*words).stdout
                assert not set(shown) & {chr(n) for n in range(32) if n != 10}, words
                assert not {"\x7f", "\x9b", "\u202e"} & set(shown), words
                assert "[bold]" in shown or "status" in words, words
                assert max(map(len, shown.splitlines())) <= int(width), words

    def test_in_logs(self, fleet: Fleet) -> None:
        os.makedirs(fleet.home.logs)
        job_id = fill(fleet.home)[job.DEAD]
        log = Path(fleet.home.logs) / f"{job_id}.1.{1_000 + job_id}.log"
        log.write_bytes(
            NASTY.encode() + b"\n10%\r20%\r\n\xff\xfe raw\n" + b"x" * 200_000 + b"\nlast, without an end"
        )
        lines = fleet.clawq("logs", job_id).stdout.splitlines()
        assert lines[0].startswith("red [bold]x[/bold] gnp.exe")
        assert lines[1:4] == ["10%", "20%", "\ufffd\ufffd raw"]
        assert sum(map(len, lines[4:-1])) == 200_000
        assert lines[-1] == "last, without an end"
        assert fleet.clawq("logs", job_id, "-n", "1").stdout == "last, without an end\n"
        assert fleet.clawq("logs", job_id, "-n", "0").stdout == ""
        last = fleet.clawq("logs", job_id, "-n", "1", "--json").stdout
        assert json.loads(last) == {"attempt": 1, "line": "last, without an end"}

    @pytest.mark.parametrize(
        "words", [["show", NASTY], ["list", "--kind", NASTY], [NASTY], ["list", f"--{NASTY}"]]
    )
    def test_in_errors(self, fleet: Fleet, words: list[str]) -> None:
        said = fleet.clawq(*words, code=2).stderr
        assert len(said.splitlines()) == 1
        assert said.rstrip("\n").isprintable()


class TestAnywhere:
    @pytest.mark.parametrize(
        "words", [["status"], ["list"], ["dead"], ["unknown"], ["show", "1"], ["why", "1"]]
    )
    @pytest.mark.parametrize(
        "environ", [[], ["LC_ALL=C"], ["LANG=C"], ["PYTHONIOENCODING=ascii"], ["LC_ALL=C", "PYTHONUTF8=0"]]
    )
    def test_bare_environments_and_ascii(self, fleet: Fleet, words: list[str], environ: list[str]) -> None:
        fill(fleet.home)
        argv = [*BARE, f"CLAWQ_HOME={os.environ['CLAWQ_HOME']}", *environ, *CLAWQ, *words]
        done = subprocess.run(argv, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.isascii()
        assert max(map(len, done.stdout.splitlines())) <= 80

    def test_foreign_letters_do_not_end_an_ascii_terminal(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fleet.clawq("enqueue", "--tenant", "\u05e9\u05dc\u05d5\u05dd", "--", "true")
        monkeypatch.setenv("PYTHONIOENCODING", "ascii")
        assert "\\u05e9" in fleet.clawq("list").stdout

    def test_a_reader_that_leaves_is_no_error(self, fleet: Fleet) -> None:
        db = open_db(fleet.home)
        with db:
            for _ in range(3_000):
                put_in(db, job.QUEUED)
        db.close()
        command = f"{' '.join(CLAWQ)} list --limit 3000; echo $? >&2"
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            ["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == "0\n"
        process.wait(20)
        process.stderr.close()

    def test_status_neither_forks_nor_touches_the_lock(self, fleet: Fleet) -> None:
        """At the process ceiling a fork fails, and a lock tried can make a starting supervisor fail."""
        fill(fleet.home)
        held = os.open(fleet.home.lock, os.O_RDWR | os.O_CREAT)
        program = (
            "import os, sys, fcntl\n"
            "def no(*a, **k): raise SystemExit('it forked or locked')\n"
            "os.fork = os.posix_spawn = os.system = fcntl.flock = fcntl.lockf = no\n"
            "import _posixsubprocess\n_posixsubprocess.fork_exec = no\n"
            "from clawq.__main__ import main\n"
            "sys.exit(main(sys.argv[1:]))\n"
        )
        for words in (["status"], ["status", "--json"], ["dead"], ["why", "2"]):
            env = os.environ | {"PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [CLAWQ[0], "-c", program, *words], capture_output=True, text=True, env=env, timeout=60
            )
            assert (done.returncode, done.stderr) == (0, "")
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(held)

    @pytest.mark.parametrize(
        "words", [["status", "--json"], ["list", "--json"], ["cancel", "1"], ["why", "1", "--json"]]
    )
    @pytest.mark.parametrize("there", [True, False])
    def test_nothing_dear_is_loaded_for_nothing(self, fleet: Fleet, words: list[str], there: bool) -> None:
        if there:
            fill(fleet.home)
        program = (
            "import sys\nfrom clawq.cli.app import main\nmain(sys.argv[1:])\n"
            "dear = {'rich', 'pydantic', 'apscheduler', 'asyncio'}\n"
            "print(sorted(dear & {name.split('.')[0] for name in sys.modules}), file=sys.stderr)\n"
        )
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [CLAWQ[0], "-c", program, *words], capture_output=True, text=True, env=env, timeout=60
        )
        assert done.stderr.splitlines()[-1] == "[]"


class TestTyping:
    def test_the_help_names_every_command(self, fleet: Fleet) -> None:
        text = fleet.clawq("--help").stdout
        for name in ("enqueue", "add", "run", "stop", "status", "logs", "reconcile", "prune", "config"):
            assert re.search(rf"^  {name} +[A-Z]", text, re.MULTILINE), name
        assert "..." not in text.replace("[ARGS]...", ""), "a command's help does not fit its line"
        assert max(map(len, text.splitlines())) <= 80
        assert fleet.clawq("-h").stdout == text
        assert "Usage: clawq why [OPTIONS] ID...\n" in fleet.clawq("why", "-h").stdout
        assert fleet.clawq("--version").stdout.startswith("clawq 0.")

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["lst"], "there is no command 'lst': did you mean list? `clawq --help` lists them"),
            (["--bad"], "there is no option '--bad': `clawq --help` shows what it takes"),
            (
                ["list", "--jsn"],
                "there is no option '--jsn': did you mean --json? `clawq list --help` shows what it takes",
            ),
            (
                ["list", "--limit"],
                "option '--limit' requires an argument: `clawq list --help` shows what it takes",
            ),
            (["list", "--limit", "0"], "--limit '0' is not a number: write a whole number from 1 to 100000"),
            (["list", "--state", "ded"], "there is no state 'ded': did you mean dead?"),
            (["show"], "missing argument 'ID': `clawq show --help` shows what it takes"),
            (["why", "x"], "'x' is not a job number: `clawq list` shows them"),
            (
                ["status", "now"],
                "got unexpected extra argument(s) (now): `clawq status --help` shows what it takes",
            ),
            (
                ["config", "chekc"],
                "there is no command 'chekc': did you mean check? `clawq config --help` lists them",
            ),
            (
                ["status", "--watch"],
                "--watch needs a terminal: leave it out, or add --json for a document each second",
            ),
        ],
    )
    def test_mistakes_are_one_line(self, fleet: Fleet, words: list[str], said: str) -> None:
        done = fleet.clawq(*words, code=2)
        assert (done.stdout, done.stderr) == ("", f"clawq: {said}\n")

    def test_a_broken_config_is_an_alert_and_not_an_end(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_running = 3\n")
        fleet.enqueue("--", "true")
        fleet.configure("[limits]\nmax_runing = 3\n")
        (alert, _) = fleet.json("status")["alerts"]
        assert alert["reason"] == "config"
        assert "clawq.toml:2: limits.max_runing" in alert["text"]
        assert alert["text"].endswith("; the last good form stays in force")
        assert "did you mean max_running?" in " ".join(fleet.clawq("status").stdout.split())
        fleet.configure("[limits]\nmax_running = 3\n")
        assert [alert["reason"] for alert in fleet.json("status")["alerts"]] == ["no_supervisor"]

    @pytest.mark.parametrize("words", [["status"], ["list"], ["cancel", "1"], ["pause"]])
    def test_a_file_that_is_no_database_is_left_alone(self, fleet: Fleet, words: list[str]) -> None:
        os.makedirs(fleet.home.data)
        Path(fleet.home.db).write_bytes(b"not a database at all" * 99)
        done = fleet.clawq(*words, code=74)
        assert (done.stdout, len(done.stderr.splitlines())) == ("", 1)
        assert Path(fleet.home.db).read_bytes() == b"not a database at all" * 99

    def test_a_writer_in_the_way_does_not_stop_a_reader(self, fleet: Fleet) -> None:
        fill(fleet.home)
        db = open_db(fleet.home)
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM jobs")
        assert fleet.json("status")["counts"] == dict.fromkeys(job.STATES, 1)
        db.execute("ROLLBACK")
        db.close()

    def test_a_supervisor_that_hangs_is_told(self, fleet: Fleet) -> None:
        fleet.enqueue("--delay", "1h", "--", "true")
        with fleet.supervised() as process:
            until(lambda: fleet.json("status")["supervisor"]["running"])
            found = fleet.json("status")
            assert found["supervisor"]["pid"] == process.pid
            assert found["alerts"] == []
            os.kill(process.pid, signal.SIGSTOP)
            try:
                os.utime(fleet.home.lock, (1, 1))
                found = fleet.json("status")
                assert (found["supervisor"]["running"], found["supervisor"]["pid"]) == (False, process.pid)
                assert found["alerts"][0]["reason"] == "supervisor_silent"
            finally:
                os.kill(process.pid, signal.SIGCONT)

    def test_another_process_with_the_supervisors_pid_is_none(self, fleet: Fleet) -> None:
        fleet.enqueue("--", "true")
        Path(fleet.home.lock).write_text(f"{os.getpid()} 1 {'0' * 36} 1 0.1.0 run\n")
        assert fleet.json("status")["supervisor"]["running"] is False


class TestWaitAndFollow:
    def test_wait_says_how_each_ended(self, fleet: Fleet) -> None:
        ids = fill(fleet.home)
        done = fleet.clawq("wait", ids[job.SUCCEEDED])
        assert (done.stdout, done.stderr) == (f"job {ids[job.SUCCEEDED]}: succeeded\n", "")
        for state in (job.DEAD, job.EXPIRED, job.CANCELLED, job.UNKNOWN):
            assert fleet.clawq("wait", ids[job.SUCCEEDED], ids[state], code=1).stdout.endswith(f": {state}\n")

    def test_wait_gives_up(self, fleet: Fleet) -> None:
        queued = fill(fleet.home)[job.QUEUED]
        done = fleet.clawq("wait", queued, "--timeout", "0s", code=75)
        assert done.stderr.splitlines() == [
            "clawq: no supervisor is running, so nothing new starts: `clawq run` is one",
            f"clawq: after 0s not ended: {queued}",
        ]
        (told,) = fleet.json("wait", queued, "--timeout", "0s", code=75)
        assert (told["job_id"], told["state"], told["outcome"]) == (queued, "queued", None)

    def test_wait_and_follow_across_attempts(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.k]\nbackoff = "0s"\n')
        seen = fleet.scratch / "seen"
        script = (
            f'echo "try $CLAWQ_ATTEMPT"; until [ -e "{seen}" ]; do sleep 0.05; done; printf tail;'
            ' [ "$CLAWQ_ATTEMPT" = 2 ] || exit 75'
        )
        job_id = fleet.enqueue("k", "--", "sh", "-c", script)
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        waiter = subprocess.Popen([*CLAWQ, "wait", str(job_id)], env=env, stdout=subprocess.PIPE, text=True)
        follower = subprocess.Popen(
            [*CLAWQ, "logs", "-f", str(job_id)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
            stderr=subprocess.PIPE,
        )
        with fleet.supervised():
            assert follower.stdout is not None
            assert follower.stdout.readline() == "try 1\n"
            seen.touch()
            assert waiter.communicate(timeout=30)[0] == f"job {job_id}: succeeded\n"
            shown, notes = follower.communicate(timeout=30)
        assert shown.splitlines() == ["tail", "try 2", "tail"]
        assert notes.splitlines()[-1] == "clawq: attempt 2"
        assert fleet.clawq("logs", job_id).stdout == "try 2\ntail\n"
        assert fleet.clawq("logs", job_id, "--attempt", "1").stdout == "try 1\ntail\n"
        assert fleet.clawq("logs", job_id, "--attempt", "1", "-f").stdout == "try 1\ntail\n"
        assert "has no attempt 3" in fleet.clawq("logs", job_id, "--attempt", "3", code=1).stderr

    def test_a_log_that_is_gone_leaves_its_last_lines(self, fleet: Fleet) -> None:
        job_id = fill(fleet.home)[job.DEAD]
        db = open_db(fleet.home)
        db.execute("UPDATE attempts SET output_tail = 'one' || char(10) || 'two' WHERE job_id = ?", (job_id,))
        db.close()
        done = fleet.clawq("logs", job_id)
        assert (done.stdout, done.stderr) == (
            "one\ntwo\n",
            "clawq: the log of attempt 1 is gone; these are its last lines\n",
        )
        assert fleet.clawq("logs", job_id, "-n", "1").stdout == "two\n"

    def test_a_job_that_has_not_run_has_no_log(self, fleet: Fleet) -> None:
        queued = fill(fleet.home)[job.QUEUED]
        assert f"`clawq why {queued}`" in fleet.clawq("logs", queued, code=1).stderr


class TestTerminal:
    """On a pseudo-terminal, as a person has it."""

    def run(
        self, words: list[str], columns: int, *, interrupt_at: str = "", **environ: str
    ) -> tuple[int, str]:
        pid, master = pty.fork()
        if pid == 0:
            env = {
                "PYTHONPATH": str(ROOT),
                "CLAWQ_HOME": os.environ["CLAWQ_HOME"],
                "TERM": "xterm",
                **environ,
            }
            os.execve(CLAWQ[0], [*CLAWQ, *words], env)
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
        shown = b""
        while True:
            try:
                chunk = os.read(master, 65_536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
            if interrupt_at and interrupt_at.encode() in shown:
                os.write(master, b"\x03")
                interrupt_at = ""
        os.close(master)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()

    def test_colours_mean_something(self, fleet: Fleet) -> None:
        fill(fleet.home)
        code, shown = self.run(["status"], 100, LANG="C.UTF-8")
        assert code == 0
        assert "\x1b[31m1 dead" in shown, "red needs a person"
        assert "\x1b[33m1 queued" in shown, "yellow waits"
        assert "\x1b[32m1 succeeded" in shown, "green is fine"
        assert "\u2591" in shown
        code, plain = self.run(["status"], 100, LANG="C.UTF-8", NO_COLOR="1")
        assert "[31m" not in plain

    @pytest.mark.parametrize("columns", [40, 80, 140])
    def test_no_line_is_longer_than_the_terminal(self, fleet: Fleet, columns: int) -> None:
        fill(fleet.home)
        for words in (["status"], ["list"], ["dead"], ["show", "2"]):
            _, shown = self.run(words, columns, NO_COLOR="1")
            plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
            assert max(map(len, plain.splitlines())) <= columns, words

    def test_watching_ends_with_ctrl_c(self, fleet: Fleet) -> None:
        fill(fleet.home)
        code, shown = self.run(["status", "--watch"], 80, interrupt_at="1 succeeded", LANG="C.UTF-8")
        assert code == 0
        assert shown.startswith("\x1b[?1049h"), "in place, and the screen is given back"
        assert "\x1b[?1049l" in shown


def test_the_dead_keep_the_end_of_a_long_error(fleet: Fleet) -> None:
    fleet.configure('[kinds.look]\ncommand = ["echo", "it"]\n')
    fleet.enqueue("look", "--payload", "{}")
    fleet.configure('[kinds.look]\ncommand = ["echo", "{field:url}"]\n')
    fleet.run_until_idle()
    shown = fleet.clawq("dead").stdout
    assert "enqueue it with --payload\n" in shown, "its end says what to do"
    assert max(map(len, shown.splitlines())) <= 80
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []


def test_nothing_is_cut_in_a_pipe(fleet: Fleet) -> None:
    kind, argument = "k" * 70, "a" * 90 + "END"
    fleet.configure(f'[kinds.{kind}]\ncommand = ["sh", "-c", "echo {argument}; exit 2", "{argument}"]\n')
    fleet.enqueue(kind)
    fleet.run_until_idle()
    for words in ("list", "dead", "show 1", "config show"):
        shown = fleet.clawq(*words.split()).stdout
        assert kind in shown
        assert "END" in shown
        assert "\u2026" not in shown
        assert "~" not in shown
