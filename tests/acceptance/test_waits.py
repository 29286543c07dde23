"""`clawq wait` and `clawq ask` with real agents, on limits that leave no room to keep a slot meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from clawq.paths import Home
from tests.dying import WAIT_BEGINS, WAIT_ENDS
from tests.fleet import CLAWQ, ROOT, Fleet
from tests.waiting import until

ONE_OF_EACH = """
[limits]
max_running = 1
max_running_per_tenant = 1
max_running_per_workflow = 1
max_waiting = 1
max_queued = 1
max_queued_per_tenant = 1
[resources.shell]
limit = 1
[kinds.default]
max_running = 1
queue_cap = 1
"""


@pytest.fixture
def fleet(home: Home) -> Fleet:
    return Fleet(home)


def in_use(fleet: Fleet, resource: str = "shell") -> int:
    return int(fleet.json("status")["resources"][resource]["in_use"])


def pid_in(fleet: Fleet, name: str) -> int:
    """The process that an agent has named in a file of the scratch folder."""
    return until(lambda: int((fleet.lines(name) or ["0"])[0]))


def wait_process(agent: int) -> psutil.Process:
    """The `clawq wait` or `ask` below this agent."""
    return until(lambda: next(iter(psutil.Process(agent).children(recursive=True)), None))


class TestNobodyKeepsWhatOthersNeed:
    def test_four_parents_on_four_slots_and_children_that_need_one(self, fleet: Fleet) -> None:
        parents = [
            fleet.script("--needs", "shell", "clawq enqueue --needs shell -- true; exec clawq wait")
            for _ in range(4)
        ]
        fleet.run_until_idle()
        assert [fleet.state(each) for each in parents] == ["succeeded"] * 4
        assert len(fleet.json("list", "--state", "succeeded")) == 8

    def test_a_chain_as_deep_as_may_be_with_every_limit_at_one(self, fleet: Fleet) -> None:
        fleet.configure(ONE_OF_EACH)
        chain = fleet.scratch / "chain"
        chain.write_text(
            "#!/bin/sh\n"
            f"echo $1 >> {fleet.scratch}/down\n"
            '[ $1 = 0 ] || { clawq enqueue --needs shell -- "$0" $(($1 - 1)) && clawq wait; } || exit 64\n'
            f"echo $1 >> {fleet.scratch}/up\n"
        )
        chain.chmod(0o700)
        root = fleet.enqueue("--needs", "shell", "--", chain, 4)
        fleet.run_until_idle()
        assert fleet.state(root) == "succeeded"
        assert (fleet.lines("down"), fleet.lines("up")) == (list("43210"), list("01234"))

    def test_its_clocks_stand_still_and_its_deadline_does_not(self, fleet: Fleet) -> None:
        fleet.configure('[kinds.agent]\nheartbeat = "agent"\nlease = "3s"\ntimeout = "3s"\n')
        script = "clawq enqueue -- sleep 3.2; exec clawq wait"
        patient = fleet.enqueue("agent", "--", "sh", "-c", script)
        with fleet.supervised():
            late = fleet.script(
                "--deadline",
                "4s",
                "--max-attempts",
                "1",
                "clawq enqueue --on-parent-end cancel -- sleep 60; exec clawq wait",
            )
            fleet.until_state(patient, "waiting")
            (why,) = fleet.json("why", patient)["blocked_by"]
            child = fleet.json("show", patient)["children"][0]["id"]
            assert (why["reason"], why["measured"], why["limit"]) == ("children", 1, None)
            assert why["clears_when"] == f"job {child} has ended"
            fleet.until_state(patient, "succeeded")
            fleet.until_state(late, "dead")

    def test_a_drain_finishes_what_waits_with_what_it_waits_for(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_running = 1\n")
        go = fleet.scratch / "go"
        parent = fleet.script(
            f"clawq enqueue -- sh -c 'until [ -e {go} ]; do sleep 0.02; done';"
            "clawq enqueue -- true; exec clawq wait"
        )
        process = fleet.start()
        fleet.until_state(parent, "waiting")
        other = fleet.enqueue("--", "true")
        process.send_signal(signal.SIGINT)
        go.touch()
        process.wait(30)
        assert (fleet.state(parent), fleet.state(other)) == ("succeeded", "queued")

    def test_parents_that_fill_the_machine_let_their_children_through_the_gate(self, fleet: Fleet) -> None:
        """28 of them closed it, and nothing moved any more."""
        bare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if not shutil.which("unshare") or subprocess.run([*bare, "true"], capture_output=True).returncode:
            pytest.skip("to count nobody else's processes needs a namespace for them, so root on Linux")
        most, parents, each = 20, 3, 12
        fleet.configure(
            f"[host]\nmax_user_procs = {most}\n[limits]\nmax_running = {parents}\n"
            f"[resources.door]\nlimit = {parents}\nkeep = true\n"
        )
        child = f"ls -d /proc/[0-9]* | wc -l >> {fleet.scratch}/measured"
        ids = [
            fleet.script(
                *("--needs", "door"),
                f"for n in $(seq {each}); do sleep 60 & done;"
                f'clawq enqueue --hold -- sh -c "{child}"; clawq wait; echo $? >> {fleet.scratch}/codes',
            )
            for _ in range(parents)
        ]
        supervisor = subprocess.Popen([*bare, *CLAWQ, "run"], cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            for job_id in ids:
                fleet.until_state(job_id, "waiting")
            other = fleet.enqueue("--needs", "door", "--", "true")
            until(lambda: "uid_procs" in self.refusals(fleet, other), 20)
            for row in fleet.json("list", "--state", "held"):
                fleet.clawq("approve", row["id"])
            for job_id in ids:
                fleet.until_state(job_id, "succeeded", seconds=30)
        finally:
            supervisor.kill()
            supervisor.wait(30)
        assert fleet.lines("codes") == ["0"] * parents
        measured = [int(line) for line in fleet.lines("measured")]
        assert len(measured) == parents
        assert (
            min(measured[:2]) >= most
        )  # by the third the others may have ended, and what they left with them

    def refusals(self, fleet: Fleet, job_id: int) -> list[str]:
        """After one more pass: what was measured may be a second old."""
        fleet.enqueue("--hold", "--needs", "door", "--", "true")
        return [each["reason"] for each in fleet.json("show", job_id)["deferrals"]]


class TestDeaths:
    def test_a_parent_killed_while_it_waits_leaves_nothing_held(self, fleet: Fleet) -> None:
        fleet.configure("[resources.shell]\nlimit = 1\n[resources.browser]\nlimit = 1\nkeep = true\n")
        parent = fleet.script(
            *("--needs", "shell,browser", "--exclusive", "one", "--max-attempts", "1"),
            f"echo $$ > {fleet.scratch}/pid; clawq enqueue --hold -- true; clawq wait; :",
        )
        with fleet.supervised():
            fleet.until_state(parent, "waiting")
            assert (in_use(fleet), in_use(fleet, "browser")) == (0, 1)
            os.kill(pid_in(fleet, "pid"), signal.SIGKILL)
            fleet.until_state(parent, "dead")
            assert (in_use(fleet), in_use(fleet, "browser")) == (0, 0)
            after = fleet.script("--needs", "shell,browser", "--exclusive", "one", "true")
            fleet.until_state(after, "succeeded")
        assert not list(Path(fleet.home.run).glob("*.wait"))

    def test_a_wait_that_dies_charges_its_job_at_once_over_the_limit(self, fleet: Fleet) -> None:
        fleet.configure("[resources.shell]\nlimit = 1\n")
        go = fleet.scratch / "go"
        parent = fleet.script(
            *("--needs", "shell"),
            f"echo $$ > {fleet.scratch}/pid; clawq enqueue --hold -- true;"
            f"clawq wait; echo $? > {fleet.scratch}/code;"
            f"until [ -e {go} ]; do sleep 0.02; done",
        )
        with fleet.supervised():
            fleet.until_state(parent, "waiting")
            other = fleet.script("--needs", "shell", f"until [ -e {go} ]; do sleep 0.02; done")
            fleet.until_state(other, "running")
            wait_process(pid_in(fleet, "pid")).kill()
            fleet.until_state(parent, "running")
            assert in_use(fleet) == 2
            assert fleet.lines("code") == ["137"]
            go.touch()
            fleet.until_state(parent, "succeeded")

    def test_a_wait_killed_at_any_point_leaves_its_job_with_its_slots(self, fleet: Fleet) -> None:
        """Also those that others have by now; and waiting again tells of the same children."""
        points = [*WAIT_BEGINS, *WAIT_ENDS]
        fleet.configure(f"[limits]\nmax_running = 20\n[resources.shell]\nlimit = {len(points)}\n")
        go, again = fleet.scratch / "go", fleet.scratch / "again"
        child = f"until [ -e {go} ]; do sleep 0.02; done; echo $CLAWQ_JOB_ID >> {fleet.scratch}/ran"
        parents = {
            point: fleet.script(
                *("--needs", "shell"),
                f"cd {ROOT}; clawq enqueue --needs shell -- sh -c '{child}';"
                f"{sys.executable} -m tests.dying '{point}' wait; echo $? {point} >> {fleet.scratch}/died;"
                f"until [ -e {again} ]; do sleep 0.02; done; exec clawq wait",
            )
            for point in points
        }
        with fleet.supervised():
            until(lambda: len(fleet.lines("died")) == len(WAIT_BEGINS))
            for point, parent in parents.items():
                fleet.until_state(parent, "running" if point in WAIT_BEGINS else "waiting")
            go.touch()
            until(lambda: len(fleet.lines("died")) == len(points))
            for parent in parents.values():
                fleet.until_state(parent, "running")
            until(lambda: in_use(fleet) == len(points))
            again.touch()
            for parent in parents.values():
                fleet.until_state(parent, "succeeded")
        assert sorted(fleet.lines("died")) == sorted(f"137 {point}" for point in points)
        assert set(Counter(fleet.lines("ran")).values()) == {1}
        for parent in parents.values():
            shown = fleet.json("show", parent)
            assert [row["outcome"] for row in shown["attempts"]] == ["succeeded"]
            assert [row["state"] for row in shown["children"]] == ["succeeded"]
        assert not list(Path(fleet.home.run).glob("*.wait"))

    def test_a_supervisor_killed_while_parents_wait_is_no_loss(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_running = 2\n")
        go = fleet.scratch / "go"
        script = f"clawq enqueue -- sh -c 'until [ -e {go} ]; do sleep 0.02; done'; clawq wait --json"
        parents = [fleet.script(script) for _ in range(2)]
        process = fleet.start()
        for each in parents:
            fleet.until_state(each, "waiting")
        fleet.end(process, signal.SIGKILL)
        go.touch()
        with fleet.supervised():
            for each in parents:
                fleet.until_state(each, "succeeded")
                assert [row["outcome"] for row in fleet.json("show", each)["attempts"]] == ["succeeded"]


class TestWait:
    def test_it_tells_each_childs_outcome_and_result(self, fleet: Fleet) -> None:
        said = fleet.scratch / "told.json"
        parent = fleet.script(
            """clawq enqueue -- sh -c 'echo "{\\"pages\\": [1, \\"\\u00e9\\"]}" > $CLAWQ_RESULT_FILE'
            clawq enqueue -- sh -c 'echo gone; exit 64'
            clawq enqueue --on-lost unknown --max-attempts 1 -- sh -c 'kill -9 $$'
            """
            f"clawq wait --json > {said}; echo $? >> {said}",
        )
        fleet.run_until_idle()
        assert fleet.state(parent) == "succeeded"
        answer, code = said.read_text().splitlines()
        told: list[dict[str, Any]] = json.loads(answer)
        assert code == "1"
        assert [(row["state"], row["outcome"], row["exit_code"]) for row in told] == [
            ("succeeded", "succeeded", 0),
            ("dead", "failed", 64),
            ("unknown", "failed", 137),
        ]
        assert told[0]["result"] == {"pages": [1, "\u00e9"]}
        assert told[1]["error"] == "exit 64: gone"

    def test_its_time_is_over_and_it_has_its_slots_again(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_running = 1\n")
        parent = fleet.script(
            "clawq enqueue --hold -- true; clawq wait --timeout 1s; echo $?; clawq show $CLAWQ_JOB_ID --json"
        )
        fleet.run_until_idle()
        *_, code, shown = fleet.clawq("logs", parent).stdout.splitlines()
        assert code == "75"
        states = [event["to"] for event in json.loads(shown)["events"]]
        assert states == ["queued", "starting", "running", "waiting", "running"]

    def test_whom_a_job_cannot_wait_for(self, fleet: Fleet) -> None:
        fleet.configure("[resources.browser]\nlimit = 2\nkeep = true\n")
        other = fleet.script("--hold", "true")
        codes = fleet.scratch / "codes"
        tries = {
            f"clawq wait {other}": 65,
            "clawq wait $CLAWQ_JOB_ID": 65,
            "clawq wait $(clawq enqueue --print-id --hold --needs browser -- true)": 65,
            "clawq wait $(clawq enqueue --print-id --hold --exclusive me -- true)": 65,
            "clawq wait 999": 1,
            "CLAWQ_TOKEN=1 clawq wait": 77,
            "CLAWQ_JOB_ID= clawq wait": 2,
        }
        script = "; ".join(f"{each}; echo $? >> {codes}" for each in tries)
        fleet.script("--needs", "browser", "--exclusive", "me", script)
        fleet.run_until_idle()
        assert [int(code) for code in fleet.lines("codes")] == list(tries.values())

    def test_enqueue_with_wait_gives_the_slot_away_too(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_running = 1\n")
        parent = fleet.script("clawq enqueue --wait -- sh -c 'exit 7'; test $? = 7")
        fleet.configure("[limits]\nmax_running = 1\n[kinds.default]\nmax_attempts = 1\n")
        fleet.run_until_idle()
        assert fleet.state(parent) == "succeeded"

    def test_outside_of_a_job_it_needs_a_number_and_only_looks(self, fleet: Fleet) -> None:
        assert fleet.clawq("wait", code=2).stderr.startswith("clawq: no job is named: clawq wait ID...")
        job_id = fleet.enqueue("--", "true")
        told = fleet.clawq("wait", job_id, "--timeout", "1s", code=75)
        assert told.stderr.splitlines() == [
            "clawq: no supervisor is running, so nothing new starts: `clawq run` is one",
            f"clawq: after 1s not ended: {job_id}",
        ]


class TestAsk:
    def ask(self, fleet: Fleet, *words: str, options: str = "") -> int:
        return fleet.script(*words, f"clawq ask 'Ship [bold]it?' {options}; echo $? >> {fleet.scratch}/codes")

    def question(self, fleet: Fleet) -> dict[str, Any]:
        rows: list[dict[str, Any]] = until(lambda: fleet.json("list", "--state", "held"))
        return rows[0]

    @pytest.mark.parametrize(
        ("verb", "state", "code"), [("approve", "succeeded", "0"), ("deny", "cancelled", "1")]
    )
    def test_a_person_answers(self, fleet: Fleet, verb: str, state: str, code: str) -> None:
        fleet.configure("[limits]\nmax_running = 1\nmax_depth = 0\nmax_descendants = 0\nmax_queued = 1\n")
        asker = self.ask(fleet)
        with fleet.supervised():
            question = self.question(fleet)
            fleet.until_state(asker, "waiting")
            assert (question["kind"], question["parent_id"]) == ("ask", asker)
            assert question["command"] == ["ask", "Ship [bold]it?"]
            assert "Ship [bold]it?" in fleet.clawq("list").stdout
            assert "asks        Ship [bold]it?" in fleet.clawq("show", question["id"]).stdout
            meanwhile = fleet.enqueue("--", "true")
            fleet.until_state(meanwhile, "succeeded")
            fleet.clawq(verb, question["id"])
            fleet.until_state(asker, "succeeded")
        assert fleet.state(question["id"]) == state
        assert fleet.lines("codes") == [code]
        fleet.clawq("retry", question["id"], code=1)

    def test_a_retry_asks_again_and_what_nobody_waits_for_is_withdrawn(self, fleet: Fleet) -> None:
        fleet.configure("[kinds.default]\nbackoff = '0s'\n")
        asker = fleet.script(
            f"echo $$ > {fleet.scratch}/pid.$CLAWQ_ATTEMPT; clawq ask 'Again?'; test $CLAWQ_ATTEMPT = 2"
        )
        with fleet.supervised():
            first = self.question(fleet)["id"]
            fleet.until_state(asker, "waiting")
            os.kill(pid_in(fleet, "pid.1"), signal.SIGKILL)
            fleet.until_state(first, "cancelled")
            second = self.question(fleet)["id"]
            assert second != first
            fleet.clawq("approve", second)
            fleet.until_state(asker, "succeeded")
        assert fleet.job(first)["last_error"] == "its asker ended before anybody answered"

    def test_nobody_answers_or_too_many_ask(self, fleet: Fleet) -> None:
        fleet.configure("[limits]\nmax_held = 1\n")
        self.ask(fleet, options="--timeout 1s")
        fleet.run_until_idle()
        held = fleet.script("--hold", "true")
        refused = self.ask(fleet)
        fleet.run_until_idle()
        assert fleet.lines("codes") == ["75", "75"]
        assert "1 of at most 1 jobs are held" in fleet.clawq("logs", refused).stdout
        assert [row["id"] for row in fleet.json("list", "--state", "held")] == [held]
        assert "not inside a job" in fleet.clawq("ask", "why?", code=2).stderr
