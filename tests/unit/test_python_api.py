"""The Python API where no agent is needed: lazy batches, waiting, documents, types, threads and forks."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import clawq
from clawq.api import documents, producing, watching
from clawq.paths import Home
from tests.producers import rows

ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- enqueue_many


def test_what_was_not_accepted_is_a_receipt_among_the_others(home: Home) -> None:
    receipts = list(
        clawq.enqueue_many(
            [
                {"command": ["true"], "dedupe_key": "a", "payload": {"n": 1}},
                {"kind": "nope"},
                {"command": ["true"], "dedupe_key": "a"},
                {"command": ["true"], "stale_after": "0s"},
                ("true", 1, 2, 3),
                None,
                {3: "true"},
                {"command": ["true"]},
            ]  # type: ignore[list-item]
        )
    )
    told = [(each.outcome, each.job_id, each.reason) for each in receipts]
    assert told == [
        ("queued", 1, None),
        ("rejected", None, "usage"),
        ("duplicate", 1, None),
        ("rejected", None, "expired"),
        *[("rejected", None, "usage")] * 3,
        ("queued", 2, None),
    ]
    assert isinstance(receipts[1].error, clawq.UsageError)
    assert isinstance(receipts[3].error, clawq.Refused)
    assert "nope" in str(receipts[1].error)
    assert receipts[0].error is None


def test_no_more_is_taken_than_one_transaction_before_its_receipts_are_given(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "AT_ONCE", 3)
    taken = 0

    def without_end() -> Iterator[dict[str, object]]:
        nonlocal taken
        while True:
            taken += 1
            yield {"command": ["true"]}

    receipts = clawq.enqueue_many(without_end())
    assert taken == 0
    assert not os.path.exists(home.db)
    assert next(receipts).job_id == 1
    assert taken == 3
    assert rows(home, "SELECT count(*) FROM jobs") == [(3,)]
    assert [next(receipts).job_id for _ in range(3)] == [2, 3, 4]
    assert taken == 6


def test_a_queue_that_does_not_answer_ends_it_and_what_was_given_out_stands(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "AT_ONCE", 2)
    receipts = clawq.enqueue_many([{"command": ["true"]}] * 4)
    assert [next(receipts).job_id, next(receipts).job_id] == [1, 2]
    os.rename(home.db, home.db + ".away")
    os.mkdir(home.db)
    with pytest.raises(clawq.StorageError):
        next(receipts)
    os.rmdir(home.db)
    os.rename(home.db + ".away", home.db)
    assert rows(home, "SELECT count(*) FROM jobs") == [(2,)]


def test_a_dry_run_of_many_keeps_nothing(home: Home) -> None:
    assert [each.outcome for each in clawq.enqueue_many([{"command": ["true"]}] * 2, dry_run=True)] == [
        "queued",
        "queued",
    ]
    assert rows(home, "SELECT count(*) FROM jobs") == [(0,)]


# ---------------------------------------------------------------- wait, job


def end(home: Home, job_id: int, state: str, result: str | None = None) -> None:
    """As if a supervisor had recorded it: through running, which the database insists on."""
    rows(home, "UPDATE jobs SET state = 'starting', token = id WHERE id = ?", job_id)
    rows(home, "UPDATE jobs SET state = 'running' WHERE id = ?", job_id)
    rows(
        home,
        "UPDATE jobs SET state = ?2, token = NULL, ended_at = 9, exit_code = 3, last_error = 'why',"
        " result = ?3 WHERE id = ?1",
        job_id,
        state,
        result,
    )


def test_waiting_gives_outcomes_with_results_in_the_order_asked_for(home: Home) -> None:
    first, second = clawq.enqueue(command=["true"]), clawq.enqueue(command=["true"])
    end(home, 1, "succeeded", '{"answer": [42]}')
    end(home, 2, "dead")
    seen = clawq.wait([second, first, 2])
    assert [each.job_id for each in seen] == [2, 1]
    assert [(each.state, each.exit_code, each.error) for each in seen] == [
        ("dead", 3, "why"),
        ("succeeded", 3, "why"),
    ]
    assert [each.result for each in seen] == [None, {"answer": [42]}]
    assert [each.succeeded for each in seen] == [False, True]
    assert clawq.wait(1)[0].result == {"answer": [42]}
    assert "job_id=2" in repr(seen[0])


def test_waiting_sees_the_end_when_it_comes(home: Home) -> None:
    clawq.enqueue(command=["true"])
    looked = threading.Event()
    seen: list[clawq.Outcome] = []

    def look() -> None:
        looked.set()
        seen.extend(clawq.wait(1, timeout=30))

    waiter = threading.Thread(target=look)
    waiter.start()
    assert looked.wait(10)
    end(home, 1, "succeeded")
    waiter.join(30)
    assert [each.state for each in seen] == ["succeeded"]


@pytest.mark.parametrize("timeout", [0, "0s", 0.05, timedelta(milliseconds=20)])
def test_a_wait_that_takes_too_long_says_how_each_stands(home: Home, timeout: Any) -> None:
    clawq.enqueue(command=["true"])
    clawq.enqueue(command=["true"], hold=True)
    with pytest.raises(clawq.TimedOut, match="not ended in time: 1, 2: they go on") as late:
        clawq.wait([1, 2], timeout)
    assert isinstance(late.value, TimeoutError)
    assert [each.state for each in late.value.outcomes] == ["queued", "held"]
    assert late.value.exit_code == 75


def test_what_cannot_be_waited_for_is_refused(home: Home) -> None:
    for job_id in (7, 0, -1, 2**70):
        with pytest.raises(clawq.NoSuchJob):
            clawq.wait(job_id)
    refused = next(clawq.enqueue_many([{"kind": "nope"}]))
    with pytest.raises(clawq.UsageError, match="this receipt has no job"):
        clawq.wait([refused])
    with pytest.raises(clawq.UsageError, match="'1' is no job"):
        clawq.wait("1")  # type: ignore[arg-type]
    assert clawq.wait([]) == []


def test_a_job_is_what_show_prints(home: Home) -> None:
    clawq.enqueue(command=["true", "x"], payload={"a": 1}, dedupe_key="k")
    end(home, 1, "dead", '{"at": 1}')
    shown = subprocess.run(
        [sys.executable, "-m", "clawq", "show", "1", "--json"], capture_output=True, text=True, check=True
    )
    document = clawq.job(1)
    assert document == json.loads(shown.stdout)
    assert document["job"]["command"] == ["true", "x"]
    assert document["result"] == {"at": 1}
    with pytest.raises(clawq.NoSuchJob, match="no job 7"):
        clawq.job(7)
    with pytest.raises(clawq.NoSuchJob):
        clawq.job(2**70)


def test_the_declared_shapes_have_the_real_keys(home: Home) -> None:
    clawq.enqueue(command=["true"])
    document = clawq.job(1)
    assert set(document) == set(documents.JobDocument.__annotations__)
    assert set(document["job"]) == set(documents.JobRow.__annotations__)
    assert set(document["events"][0]) == set(documents.Event.__annotations__)


# ---------------------------------------------------------------- outside a job


@pytest.mark.parametrize(
    "call",
    [
        clawq.beat,
        lambda: clawq.effect("mail").__enter__(),
        lambda: clawq.spend("tokens", 3),
        lambda: clawq.fail("transient"),
    ],
)
def test_what_is_for_agents_says_so_outside_a_job(home: Home, call: Any) -> None:
    with pytest.raises(clawq.UsageError, match="not inside a job"):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: clawq.effect("").__enter__(), "the key ''"),
        (lambda: clawq.effect("a\nb").__enter__(), "no control characters"),
        (lambda: clawq.effect(7).__enter__(), "the key 7: a text is needed"),  # type: ignore[arg-type]
        (lambda: clawq.job("7"), "'7' is no job"),  # type: ignore[arg-type]
        (lambda: clawq.throttle(7, "2m"), "no resource 7 is configured"),  # type: ignore[arg-type]
        (lambda: clawq.effect("a", "tenants").__enter__(), "did you mean tenant"),  # type: ignore[arg-type]
        (lambda: clawq.spend("tokens", -1), "-1: a whole number"),
        (lambda: clawq.spend("tokens", True), "True: a whole number"),
        (lambda: clawq.fail("transiet"), "did you mean transient"),  # type: ignore[arg-type]
        (lambda: clawq.fail("transient", reason="two words"), "one word"),
        (lambda: clawq.throttle("shell", "2d"), "a rest is at most 1d"),
        (lambda: clawq.throttle("shel", "2m"), "did you mean shell"),
    ],
)
def test_wrong_arguments_are_refused_by_name(home: Home, call: Any, said: str) -> None:
    with pytest.raises(clawq.UsageError) as wrong:
        call()
    assert said in str(wrong.value)


def test_a_resource_can_be_made_to_rest(home: Home) -> None:
    clawq.throttle("shell", timedelta(minutes=5))
    assert rows(home, "SELECT resource FROM cooldowns") == [("shell",)]
    clawq.throttle("shell", 0)
    assert rows(home, "SELECT resource FROM cooldowns") == []


# ---------------------------------------------------------------- threads, forks, types, cost


def test_threads_may_share_it(home: Home) -> None:
    clawq.enqueue(command=["true"])
    ids: list[int | None] = []

    def one() -> None:
        ids.extend(each.job_id for each in clawq.enqueue_many([{"command": ["true"]}] * 5))
        clawq.job(1)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(each for each in ids if each is not None) == list(range(2, 42))


def _in_a_child() -> None:
    assert [each.job_id is not None for each in clawq.enqueue_many([{"command": ["true"]}] * 2)] == [True] * 2


def test_a_fork_in_the_middle_of_a_batch_is_harmless(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is open between two receipts, so that there is nothing to inherit."""
    monkeypatch.setattr(producing, "AT_ONCE", 1)
    receipts = clawq.enqueue_many([{"command": ["true"]}] * 3)
    next(receipts)
    held = (
        {os.readlink(link) for link in Path("/proc/self/fd").glob("*") if link.exists()}
        if os.path.isdir("/proc/self/fd")
        else set()
    )
    assert not [name for name in held if home.db in name]
    child = multiprocessing.get_context("fork").Process(target=_in_a_child)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert len(list(receipts)) == 2
    assert rows(home, "SELECT count(*) FROM jobs") == [(5,)]


USER = """
from datetime import timedelta
import clawq

def send(number: int) -> None: ...

receipt = clawq.enqueue("mail", payload={"n": 7}, dedupe_key="mail-7", delay=timedelta(minutes=5))
number: int | None = receipt.job_id
for each in clawq.enqueue_many({"kind": "mail", "payload": n} for n in range(3)):
    if each.error is not None:
        print(each.reason, each.retry_after_s, each.safe_to_retry)
try:
    for outcome in clawq.wait([receipt], timeout="5m"):
        good: bool = outcome.succeeded
        print(outcome.state, outcome.result["x"], good)
except clawq.TimedOut as late:
    print(late.outcomes)
state: str = clawq.job(7)["job"]["state"]
clawq.beat()
with clawq.effect("mail:7") as fresh:
    if fresh:
        try:
            send(7)
        except ConnectionRefusedError:
            fresh.did_not_happen()
            raise
reveal_type(clawq.spend("tokens", 100).overdrawn)
clawq.throttle("anthropic", "5m")
clawq.fail("rate_limit", "429", retry_after=60)
"""
WRONG = """
import clawq
clawq.enqueue(priority="high")
clawq.job("7")
clawq.effect("k", scope="all")
clawq.fail("sometimes")
"""


def test_a_users_program_is_checked_by_mypy(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)
    checked = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}/c"]
    env = os.environ | {"MYPYPATH": str(ROOT)}

    def said(name: str) -> list[str]:
        done = subprocess.run([*checked, name], capture_output=True, text=True, cwd=tmp_path, env=env)
        return [line for line in done.stdout.splitlines() if line.startswith(name)]

    assert said("right.py") == ['right.py:27: note: Revealed type is "bool"']
    assert [line.split(":")[1] for line in said("wrong.py")] == ["3", "4", "5", "6"]


def test_everything_it_exports_is_there_and_the_package_itself_loads_nothing(home: Home) -> None:
    for name in clawq.__all__:
        assert getattr(clawq, name) is not None, name
    assert clawq.job is watching.job
    code = (
        "import sys; import clawq; before = set(sys.modules); clawq.enqueue(command=['true']);"
        "print(*sorted(name for name in set(sys.modules) - before if '.' not in name))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env=env, check=True
    )
    dear = {"json", "re", "typing", "pathlib", "dataclasses", "datetime", "socket", "pydantic"}
    assert not set(done.stdout.split()) & dear
