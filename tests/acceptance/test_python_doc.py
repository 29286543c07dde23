"""docs/python.md: its programs are run, and what they say is what happens to real jobs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import clawq
from tests.fleet import ROOT, Fleet
from tests.waiting import until

DOC = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python (run|agent)\n(.*?)^```", DOC, re.DOTALL | re.MULTILINE)
ONE, MANY, WAIT = (text for use, text in BLOCKS if use == "run")
(AGENT,) = (text for use, text in BLOCKS if use == "agent")
ADD = """
import json, os
payload = json.load(open(os.environ["CLAWQ_PAYLOAD_FILE"]))
json.dump(sum(payload), open(os.environ["CLAWQ_RESULT_FILE"], "w"))
"""


@pytest.fixture
def fleet(home: object) -> Fleet:
    fleet = Fleet(home)  # type: ignore[arg-type]
    (fleet.scratch / "add.py").write_text(ADD)
    fleet.configure(
        f"""
        [limits]
        max_queued = 2000
        max_queued_per_tenant = 2000
        [kinds."site.qa"]
        command = ["true"]
        [kinds.add]
        command = ["{sys.executable}", "{fleet.scratch}/add.py"]
        [kinds.mail]
        backoff = "1s"
        max_attempts = 2
        """
    )
    return fleet


def run(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_job_and_the_same_again(fleet: Fleet) -> None:
    assert run(ONE) == "queued 1\n"
    assert run(ONE) == "duplicate 1\n"


def test_many_are_taken_up_to_the_cap(fleet: Fleet) -> None:
    """The last tenth of the queue is for band critical."""
    assert run(MANY) == "1800 accepted\n"
    assert fleet.json("status")["refused"][0]["count"] == 700


def test_waiting_gives_what_the_agents_left(fleet: Fleet) -> None:
    with fleet.supervised():
        assert run(WAIT) == "[2, 4]\nsucceeded 1\n"


def agent(fleet: Fleet, send: str) -> str:
    """The page's agent, whose `send` does this; the state of its job once it is over."""
    sent = f"open({str(fleet.scratch / 'sent')!r}, 'a').write(f'{{number}}\\n')"
    (fleet.scratch / "agent.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        f"first = os.environ['CLAWQ_ATTEMPT'] == '1'\n"
        f"def send(number):\n    {send}\n    {sent}\n{AGENT}"
    )
    job_id = fleet.enqueue("mail", "--", sys.executable, fleet.scratch / "agent.py")
    fleet.run_until_idle()
    return fleet.state(job_id)


def effects(fleet: Fleet) -> list[str]:
    return [each["state"] for each in fleet.json("show", 1)["effects"]]


def test_a_clean_exit_confirms_it(fleet: Fleet) -> None:
    assert agent(fleet, "pass") == "succeeded"
    assert (fleet.lines("sent"), effects(fleet)) == (["7"], ["done"])


def test_an_exception_leaves_it_open_and_the_job_unknown(fleet: Fleet) -> None:
    assert agent(fleet, "raise TimeoutError") == "unknown"
    assert (fleet.lines("sent"), effects(fleet)) == ([], ["begun"])


def test_what_surely_did_not_happen_is_done_by_the_retry(fleet: Fleet) -> None:
    assert agent(fleet, "if first: raise ConnectionRefusedError") == "succeeded"
    assert (fleet.lines("sent"), effects(fleet)) == (["7"], ["done"])


def test_what_was_done_is_skipped_and_what_is_open_is_not_repeated(fleet: Fleet) -> None:
    """One agent that enters three times: done, skipped; then one left open, and entered again."""
    (fleet.scratch / "agent.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import clawq\n"
        "for _ in range(2):\n"
        "    with clawq.effect('mail') as fresh:\n"
        "        print('fresh', bool(fresh), fresh.job_id)\n"
        "try:\n"
        "    with clawq.effect('post'):\n"
        "        raise KeyboardInterrupt\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
        "try:\n"
        "    with clawq.effect('post'):\n"
        "        print('never')\n"
        "except clawq.Unconfirmed as error:\n"
        "    print(error.reason, error.key, error.exit_code)\n"
        "clawq.beat()\n"
        "print('overdrawn', clawq.spend('tokens', 11).overdrawn)\n"
        "clawq.fail('permanent', 'so it is', reason='tired')\n"
    )
    with open(fleet.home.config, "a") as config:
        config.write("[budgets.tokens]\nlimit = 10\nper = '1h'\n")
    job_id = fleet.enqueue("mail", "--", sys.executable, fleet.scratch / "agent.py")
    fleet.run_until_idle()
    assert fleet.clawq("logs", job_id).stdout.splitlines() == [
        f"fresh True {job_id}",
        f"fresh False {job_id}",
        "unconfirmed post 11",
        "overdrawn True",
    ]
    assert fleet.state(job_id) == "unknown"
    assert fleet.json("show", job_id)["attempts"][0]["error"].startswith("so it is")


@pytest.mark.parametrize(("verb", "said"), [("approve", "True"), ("deny", "False")])
def test_a_person_is_asked(fleet: Fleet, verb: str, said: str) -> None:
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import clawq; print(clawq.ask('Send it?'))"
    with fleet.supervised():
        job_id = fleet.enqueue("mail", "--", sys.executable, "-c", script)
        (question,) = until(lambda: fleet.json("list", "--state", "held"), 20, "no question was put")
        fleet.until_state(job_id, "waiting")
        fleet.clawq(verb, question["id"])
        fleet.until_state(job_id, "succeeded")
    assert fleet.clawq("logs", job_id).stdout == f"{said}\n"


def test_a_question_that_nobody_answers_times_out(fleet: Fleet) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import clawq\n"
        "try: clawq.ask('Send it?', timeout=0.2)\nexcept clawq.TimedOut as late: print(late.reason)"
    )
    with fleet.supervised():
        job_id = fleet.enqueue("mail", "--", sys.executable, "-c", script)
        fleet.until_state(job_id, "succeeded")
    assert fleet.clawq("logs", job_id).stdout == "timed_out\n"


def test_an_old_token_is_lease_lost(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.script("true")
    monkeypatch.setenv("CLAWQ_JOB_ID", "1")
    monkeypatch.setenv("CLAWQ_TOKEN", "7")
    monkeypatch.setenv("CLAWQ_HEARTBEAT_FILE", str(fleet.scratch / "beat"))
    for call in (clawq.beat, lambda: clawq.effect("k").__enter__(), lambda: clawq.fail("transient")):
        with pytest.raises(clawq.LeaseLost, match="stop"):
            call()


def test_the_table_names_every_exception_with_its_exit_code() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| exit ([\d, ]+) \|", DOC, re.MULTILINE))
    exported = {name: getattr(clawq, name) for name in clawq.__all__}
    raised = {
        name: each
        for name, each in exported.items()
        if isinstance(each, type) and issubclass(each, clawq.ClawqError) and name != "ClawqError"
    }
    assert set(rows) == set(raised)
    assert rows.pop("Refused") == "65, 75"
    assert {name: str(raised[name].exit_code) for name in rows} == rows
