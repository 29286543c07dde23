"""Side effects with real agents that are killed in the middle, and real probes that are asked about them."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from clawq.paths import Home
from tests.acceptance.test_enqueue_imports import JSON, NEVER, imported
from tests.fleet import ROOT, Fleet
from tests.waiting import until

CLAWQ = f"PYTHONPATH={ROOT} {sys.executable} -m clawq"
DIES = "kill -9 $PPID; kill -9 $$; sleep 60"
"""Its shell first, so that nobody can tell how it ended; then the agent."""


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def mailer(fleet: Fleet, then: str, key: str = "mail:7", scope: str = "job") -> str:
    """An agent that sends one mail: appends a line to `sent`, in the middle of the effect."""
    return (
        f"{CLAWQ} effect begin {key} --scope {scope}; code=$?; echo $code >> {fleet.scratch}/codes; "
        f"[ $code = 10 ] && exit 0; [ $code = 0 ] || exit $code; "
        f"echo mail >> {fleet.scratch}/sent; {then}"
    )


def effects_of(fleet: Fleet, job_id: int) -> list[tuple[str, str]]:
    return [(each["key"], each["state"]) for each in fleet.json("show", job_id)["effects"]]


def alive(path: Path) -> bool:
    try:
        return psutil.Process(int(path.read_text())).status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, psutil.Error):
        return False


class TestVerbs:
    def test_a_retry_skips_what_was_done(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.k]\nbackoff = "1s"\n')
        script = mailer(fleet, f"{CLAWQ} effect done mail:7; exit 1")
        job_id = fleet.enqueue("k", "--", "sh", "-c", script)
        fleet.run_until_idle()
        assert fleet.state(job_id) == "succeeded"
        assert (fleet.lines("codes"), fleet.lines("sent")) == (["0", "10"], ["mail"])

    def test_a_retry_does_again_what_failed(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.k]\nbackoff = "1s"\nmax_attempts = 2\n')
        script = mailer(fleet, f"{CLAWQ} effect fail mail:7; exit 1")
        job_id = fleet.enqueue("k", "--", "sh", "-c", script)
        fleet.run_until_idle()
        assert (fleet.state(job_id), fleet.lines("codes")) == ("dead", ["0", "0"])

    def test_of_two_jobs_of_a_tenant_one_does_it(self, fleet: Fleet) -> None:
        script = mailer(
            fleet,
            f"until [ $(wc -l < {fleet.scratch}/codes) = 2 ]; do sleep 0.05; done; "
            f"{CLAWQ} effect done mail:7",
            scope="tenant",
        )
        ids = [fleet.script("--max-attempts", "1", script) for _ in range(2)]
        fleet.run_until_idle()
        assert (fleet.lines("codes"), fleet.lines("sent")) == (["0", "75"], ["mail"])
        assert sorted(fleet.state(each) for each in ids) == ["dead", "succeeded"]
        after = fleet.script(mailer(fleet, "true", scope="tenant"))
        fleet.run_until_idle()
        assert (fleet.state(after), fleet.lines("codes")[-1]) == ("succeeded", "10")

    def test_json_tells_the_same(self, fleet: Fleet) -> None:
        out = fleet.scratch / "out"
        words = (
            "begin k",
            "begin k",
            "done k",
            "begin k",
            "done k",
            "fail k",
            "done never",
            "begin 'ü \"q\"'",
            "fail 'ü \"q\"'",
        )
        script = "; ".join(f"{CLAWQ} effect {each} --json >> {out}; echo $? >> {out}" for each in words)
        job_id = fleet.script(script)
        fleet.run_until_idle()
        lines = out.read_text().splitlines()
        told = [json.loads(line) for line in lines[::2]]
        assert [each["outcome"] for each in told] == [
            *("begun", "unconfirmed", "done", "done", "done", "done", "never_begun", "begun", "failed"),
        ]
        assert lines[1::2] == ["0", "11", "0", "10", "0", "1", "1", "0", "0"]
        assert {each["key"] for each in told} == {"k", "never", 'ü "q"'}
        assert told[0] == {
            "key": "k",
            "scope": "job",
            "outcome": "begun",
            "job_id": job_id,
            "begun_at": told[0]["begun_at"],
            "settled_at": None,
        }
        assert datetime.fromisoformat(told[2]["settled_at"]) >= datetime.fromisoformat(told[2]["begun_at"])

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ((), "begin|done|fail is missing"),
            (("begin",), "KEY is missing"),
            (("begin", "a", "b"), "unexpected 'b'"),
            (("start", "a"), "there is no 'start'"),
            (("begin", "a", "--scope", "world"), "--scope 'world'"),
            (("begin", ""), "the key ''"),
            (("begin", "a\nb"), "the key 'a\\\\nb'"),
            (("begin", "x" * 1001), "the key 'xxx"),
            (("begin", "a"), "this is not inside a job"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, fleet: Fleet, words: tuple[str, ...], said: str) -> None:
        done = fleet.clawq("effect", *words, code=2)
        assert done.stderr.startswith(f"clawq: {said.replace(chr(92) * 2, chr(92))}")
        assert done.stderr.count("\n") == 1

    def test_an_attempt_that_lost_its_job_is_told(
        self, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job_id = fleet.script(f"env > {fleet.scratch}/env")
        fleet.run_until_idle()
        world = dict(line.partition("=")[::2] for line in fleet.lines("env"))
        for name in ("CLAWQ_JOB_ID", "CLAWQ_TOKEN", "CLAWQ_HEARTBEAT_FILE"):
            monkeypatch.setenv(name, world[name])
        for words in (("effect", "begin", "k"), ("effect", "done", "k"), ("effect", "fail", "k"), ("beat",)):
            done = fleet.clawq(*words, code=77)
            assert done.stderr.startswith(f"clawq: job {job_id} is no longer this agent's")
        assert not Path(world["CLAWQ_HEARTBEAT_FILE"]).exists()
        assert effects_of(fleet, job_id) == []


class TestKilledInTheMiddle:
    def left_unknown(self, fleet: Fleet) -> int:
        job_id = fleet.script("--dedupe-key", "mail7", "--dedupe-scope", "active", mailer(fleet, DIES))
        fleet.run_until_idle()
        assert fleet.state(job_id) == "unknown"
        assert effects_of(fleet, job_id) == [("mail:7", "begun")]
        return job_id

    def test_it_is_not_tried_again_and_its_key_refuses_a_duplicate(self, fleet: Fleet) -> None:
        job_id = self.left_unknown(fleet)
        fleet.run_until_idle()
        assert (fleet.state(job_id), fleet.lines("sent")) == ("unknown", ["mail"])
        again = ("enqueue", "--dedupe-key", "mail7", "--dedupe-scope", "active", "--json", "--", "true")
        assert json.loads(fleet.clawq(*again).stdout)["outcome"] == "duplicate"
        shown = fleet.clawq("unknown").stdout
        assert "gone without an exit code" in shown
        assert "    open: mail:7  begun " in shown
        assert "clawq reconcile ID --requeue" in shown
        (row,) = fleet.json("unknown")
        assert [(each["key"], each["scope"]) for each in row["effects"]] == [("mail:7", "job")]
        assert "mail:7" in fleet.clawq("show", job_id).stdout

    @pytest.mark.parametrize(
        ("verdict", "state", "effect"),
        [
            ("--succeeded", "succeeded", "done"),
            ("--failed", "dead", "failed"),
            ("--requeue", "queued", "failed"),
        ],
    )
    def test_a_person_says_what_happened(self, fleet: Fleet, verdict: str, state: str, effect: str) -> None:
        job_id = self.left_unknown(fleet)
        fleet.clawq("reconcile", job_id, verdict, "--note", "looked at the outbox")
        assert fleet.state(job_id) == state
        assert effects_of(fleet, job_id) == [("mail:7", effect)]
        assert fleet.json("unknown") == []

    def test_what_was_requeued_may_do_it(self, fleet: Fleet) -> None:
        job_id = self.left_unknown(fleet)
        (fleet.scratch / "sent").unlink()
        fleet.clawq("reconcile", job_id, "--requeue")
        fleet.run_until_idle()
        assert fleet.lines("codes") == ["0", "0"]

    @pytest.mark.parametrize("code", [0, 1, 64])
    def test_also_an_agent_that_ended_by_itself(self, fleet: Fleet, code: int) -> None:
        job_id = fleet.script(mailer(fleet, f"exit {code}"))
        fleet.run_until_idle()
        shown = fleet.json("show", job_id)
        assert (shown["job"]["state"], shown["job"]["exit_code"]) == ("unknown", code)
        assert "mail:7" in shown["job"]["last_error"]
        assert shown["events"][-1]["reason"] == "effect_open"

    def test_a_cancelled_one_is_unknown_too(self, fleet: Fleet) -> None:
        with fleet.supervised():
            job_id = fleet.script(mailer(fleet, "sleep 60"))
            until(lambda: fleet.lines("sent"))
            fleet.clawq("cancel", job_id)
            fleet.until_state(job_id, "unknown")

    def test_the_supervisor_killed_too(self, fleet: Fleet) -> None:
        first = fleet.start()
        job_id = fleet.script(mailer(fleet, f"echo $$ > {fleet.scratch}/pid; sleep 60"))
        until(lambda: fleet.lines("pid"))
        fleet.end(first, signal.SIGKILL)
        os.killpg(os.getpgid(int(fleet.lines("pid")[0])), signal.SIGKILL)
        fleet.run_until_idle()
        assert (fleet.state(job_id), fleet.lines("sent")) == ("unknown", ["mail"])


class TestProbe:
    def configure(self, fleet: Fleet, probe: str, more: str = "") -> None:
        words = json.dumps(["sh", "-c", probe, "probe", "--", "{field:id}"])
        fleet.configure(f'[kinds.mail]\nbackoff = "1s"\nreconcile = {words}\n{more}')

    def enqueue(self, fleet: Fleet, then: str = DIES) -> int:
        return fleet.enqueue("mail", "--payload", '{"id": "m 7"}', "--", "sh", "-c", mailer(fleet, then))

    def test_it_happened(self, fleet: Fleet) -> None:
        self.configure(fleet, f'echo "$2" > {fleet.scratch}/asked; echo "it is in the outbox"; exit 0')
        job_id = self.enqueue(fleet)
        fleet.run_until_idle()
        shown = fleet.json("show", job_id)
        assert (shown["job"]["state"], shown["job"]["last_error"]) == ("succeeded", None)
        assert shown["events"][-1]["reason"] == "its probe says that it happened: it is in the outbox"
        assert effects_of(fleet, job_id) == [("mail:7", "done")]
        assert (fleet.lines("asked"), fleet.lines("sent")) == (["m 7"], ["mail"])
        assert [name for name in os.listdir(fleet.home.run) if name.startswith("probe")] == []

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells whose such an orphan is")
    def test_a_daemon_that_it_leaves_is_ended_with_it(self, fleet: Fleet) -> None:
        pid = fleet.scratch / "pid"
        daemon = f"setsid sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 300' & "
        self.configure(fleet, f"{daemon} while [ ! -e {pid} ]; do sleep 0.01; done; exit 0")
        job_id = self.enqueue(fleet)
        fleet.run_until_idle()
        assert fleet.state(job_id) == "succeeded"
        assert not Path(f"/proc/{pid.read_text().strip()}").exists()

    def test_it_did_not(self, fleet: Fleet) -> None:
        self.configure(fleet, "echo the outbox is empty; exit 1")
        then = f"[ $CLAWQ_ATTEMPT = 1 ] && {{ {DIES}; }}; {CLAWQ} effect done mail:7"
        job_id = self.enqueue(fleet, then)
        fleet.run_until_idle()
        shown = fleet.json("show", job_id)
        assert (shown["job"]["state"], shown["job"]["attempts"]) == ("succeeded", 2)
        moves = [(each["from"], each["to"]) for each in shown["events"]]
        assert moves[2:6] == [
            *(
                ("starting", "running"),
                ("running", "unknown"),
                ("unknown", "scheduled"),
                ("scheduled", "queued"),
            )
        ]
        assert (
            shown["events"][4]["reason"] == "lost; its probe says that it did not happen: the outbox is empty"
        )
        assert fleet.lines("codes") == ["0", "0"]

    @pytest.mark.parametrize(
        ("end", "error"), [(DIES, "gone"), ("exit 0", "effect begun"), ("exit 64", "exit 64")]
    )
    def test_it_did_not_and_no_attempt_is_left(self, fleet: Fleet, end: str, error: str) -> None:
        self.configure(fleet, "exit 1", "max_attempts = 1\n")
        job_id = self.enqueue(fleet, end)
        fleet.run_until_idle()
        row = fleet.job(job_id)
        assert (row["state"], row["attempts"]) == ("dead", 1)
        assert row["last_error"].startswith(error)
        assert effects_of(fleet, job_id) == [("mail:7", "failed")]

    def test_a_cancelled_job_of_which_nothing_happened_is_cancelled(self, fleet: Fleet) -> None:
        self.configure(fleet, "exit 1")
        with fleet.supervised():
            job_id = self.enqueue(fleet, "sleep 60")
            until(lambda: fleet.lines("sent"))
            fleet.clawq("cancel", job_id)
            fleet.until_state(job_id, "cancelled")

    @pytest.mark.parametrize(
        ("probe", "said"),
        [
            ("echo no net; exit 3", "its probe could not tell: exit 3: no net"),
            ("kill -9 $PPID; kill -9 $$", "its probe was killed"),
            ("echo bye; exec 2>&-; kill -9 $$", "its probe could not tell: exit 137: "),
        ],
    )
    def test_it_cannot_tell_and_is_asked_once(self, fleet: Fleet, probe: str, said: str) -> None:
        self.configure(fleet, f"echo asked >> {fleet.scratch}/asked; {probe}")
        job_id = self.enqueue(fleet)
        for _ in range(2):
            fleet.run_until_idle()
        row = fleet.job(job_id)
        assert (row["state"], fleet.lines("asked")) == ("unknown", ["asked"])
        assert f"; {said}" in row["last_error"]
        assert fleet.json("show", job_id)["events"][-1]["reason"].startswith(said)
        assert said.strip() in " ".join(fleet.clawq("unknown").stdout.split())

    def test_a_job_that_becomes_unknown_again_is_asked_about_again(self, fleet: Fleet) -> None:
        self.configure(fleet, f"echo asked >> {fleet.scratch}/asked; exit 1", "max_attempts = 3\n")
        job_id = self.enqueue(fleet)
        fleet.run_until_idle()
        assert (fleet.state(job_id), len(fleet.lines("asked")), fleet.lines("codes")) == (
            "dead",
            3,
            ["0"] * 3,
        )

    def test_what_cannot_be_started_is_said(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.mail]\nreconcile = ["check-sent", "{field:id}"]\n')
        job_id = fleet.enqueue("mail", "--payload", '{"id": "-x"}', "--", "sh", "-c", mailer(fleet, DIES))
        fleet.run_until_idle()
        row = fleet.job(job_id)
        assert row["state"] == "unknown"
        assert "its probe cannot be started: {field:id} starts with '-'" in row["last_error"]

    def test_without_an_effect_it_is_asked_too(self, fleet: Fleet) -> None:
        self.configure(fleet, "exit 0", 'on_lost = "unknown"\n')
        job_id = fleet.enqueue("mail", "--payload", '{"id": 1}', "--", "sh", "-c", DIES)
        fleet.run_until_idle()
        assert fleet.state(job_id) == "succeeded"

    def test_its_world(self, fleet: Fleet) -> None:
        out = fleet.scratch / "world"
        self.configure(
            fleet,
            f"(env; pwd; read line || echo no stdin; cat $CLAWQ_PAYLOAD_FILE) > {out}; exit 0",
            'env = { OF_KIND = "yes" }\n',
        )
        job_id = fleet.enqueue(
            *("mail", "--payload", '{"id": 1}', "--env", "OF_JOB=yes", "--cwd", "/usr"),
            *("--", "sh", "-c", mailer(fleet, DIES)),
        )
        fleet.run_until_idle()
        world = out.read_text()
        lines = world.splitlines()
        for line in (
            "OF_KIND=yes",
            "OF_JOB=yes",
            "/usr",
            "no stdin",
            f"CLAWQ_JOB_ID={job_id}",
            "CLAWQ_KIND=mail",
        ):
            assert line in lines
        assert world.endswith('{"id": 1}')
        for name in ("CLAWQ_TOKEN", "CLAWQ_HEARTBEAT_FILE", "CLAWQ_RESULT_FILE"):
            assert f"{name}=" not in world

    def test_two_at_a_time(self, fleet: Fleet) -> None:
        marks = fleet.scratch / "marks"
        self.configure(fleet, f"echo + >> {marks}; sleep 0.3; echo - >> {marks}; exit 0")
        ids = [self.enqueue(fleet) for _ in range(5)]
        fleet.run_until_idle()
        assert {fleet.state(each) for each in ids} == {"succeeded"}
        now = most = 0
        for mark in fleet.lines("marks"):
            now += 1 if mark == "+" else -1
            most = max(most, now)
        assert (len(fleet.lines("marks")), most) == (10, 2)

    def test_a_person_may_be_faster(self, fleet: Fleet) -> None:
        self.configure(fleet, f"echo $$ > {fleet.scratch}/pid; sleep 60; exit 1")
        with fleet.supervised():
            job_id = self.enqueue(fleet)
            until(lambda: fleet.lines("pid"))
            fleet.clawq("reconcile", job_id, "--succeeded")
            until(lambda: not alive(fleet.scratch / "pid"), message="the probe goes on")
            assert (fleet.state(job_id), effects_of(fleet, job_id)) == ("succeeded", [("mail:7", "done")])

    @pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
    def test_a_supervisor_that_ends_leaves_none_and_the_next_asks_anew(self, fleet: Fleet, how: int) -> None:
        probe = (
            f"echo $$ > {fleet.scratch}/pid; echo asked >> {fleet.scratch}/asked; "
            f"[ $(wc -l < {fleet.scratch}/asked) = 1 ] && sleep 60; exit 0"
        )
        self.configure(fleet, probe)
        first = fleet.start()
        job_id = self.enqueue(fleet)
        until(lambda: fleet.lines("pid"))
        (pid,) = fleet.lines("pid")
        fleet.end(first, how)
        (fleet.scratch / "pid").write_text(pid)
        if how == signal.SIGTERM:
            until(lambda: not alive(fleet.scratch / "pid"), 5)
        old = psutil.Process(int(pid)) if psutil.pid_exists(int(pid)) else None
        fleet.run_until_idle()
        assert (fleet.state(job_id), len(fleet.lines("asked"))) == ("succeeded", 2)
        assert old is None or not old.is_running() or old.status() == psutil.STATUS_ZOMBIE
        assert [name for name in os.listdir(fleet.home.run) if name.startswith("probe")] == []


class TestBeat:
    def test_an_agent_that_beats_lives_and_one_that_stops_is_stalled(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.k]\nheartbeat = "agent"\nlease = "2s"\nmax_attempts = 1\n')
        beats = f"for n in 1 2 3 4 5 6 7 8; do {CLAWQ} beat || exit 9; sleep 0.4; done"
        lives = fleet.enqueue("k", "--", "sh", "-c", beats)
        stops = fleet.enqueue("k", "--", "sh", "-c", f"{CLAWQ} beat; while :; do echo busy; sleep 0.2; done")
        fleet.run_until_idle()
        assert fleet.state(lives) == "succeeded"
        assert fleet.json("show", stops)["attempts"][0]["outcome"] == "stalled"

    def test_it_touches_the_file_it_was_given(self, fleet: Fleet) -> None:
        job_id = fleet.script(
            f"{CLAWQ} beat --json > {fleet.scratch}/told; "
            f"ls -l $CLAWQ_HEARTBEAT_FILE > {fleet.scratch}/mode; "
            f"touch -d @1000 $CLAWQ_HEARTBEAT_FILE; {CLAWQ} beat; find $CLAWQ_HEARTBEAT_FILE -mmin -5 "
            f"> {fleet.scratch}/found"
        )
        fleet.run_until_idle()
        assert fleet.state(job_id) == "succeeded"
        assert json.loads(fleet.lines("told")[0]) == {"job_id": job_id}
        assert fleet.lines("mode")[0].startswith("-rw-------")
        assert len(fleet.lines("found")) == 1

    def test_outside_a_job(self, fleet: Fleet) -> None:
        assert "this is not inside a job" in fleet.clawq("beat", code=2).stderr


LIGHT = {
    *(
        "__future__",
        "apsw",
        "clawq",
        "clawq.__main__",
        "clawq.cli",
        "clawq.errors",
        "clawq.states",
        "clawq.lease",
    ),
    *("clawq.paths", "clawq.store", "clawq.store.connection", "clawq.store.sqlfile", "clawq.store.told"),
}


def test_a_beat_and_an_effect_load_this_and_nothing_else(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fleet.supervised():
        fleet.script(
            f"env > {fleet.scratch}/env.new; mv {fleet.scratch}/env.new {fleet.scratch}/env; sleep 60"
        )
        world: dict[str, Any] = dict(line.partition("=")[::2] for line in until(lambda: fleet.lines("env")))
        with monkeypatch.context() as inside:
            for name in ("CLAWQ_JOB_ID", "CLAWQ_TOKEN", "CLAWQ_HEARTBEAT_FILE"):
                inside.setenv(name, world[name])
            assert imported("beat") == LIGHT | {"clawq.cli.beat"}
            heavier = {
                "clawq.cli.effect",
                "clawq.options",
                "clawq.store.effects",
                "clawq.values",
                "clawq.verbs",
                "clawq.when",
            }
            assert imported("effect", "begin", "k") == LIGHT | heavier
            assert imported("effect", "done", "k", "--json") == LIGHT | heavier | JSON
            assert not {name.partition(".")[0] for name in LIGHT | heavier} & NEVER
        fleet.clawq("stop", "--now")
