"""Every refusal of the queue as data, provoked for real, and what careless and patient producers get."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import clawq
from clawq import errors
from clawq.cli import enqueue as command
from clawq.paths import Home
from tests.fleet import Fleet
from tests.producers import answer, at_once, configure, rows

KEYS = ["outcome", "job_id", "state", "degraded", "reason", "retry_after_s", "safe_to_retry", "deadline_at"]


class Case(NamedTuple):
    """``given`` is refused in a home that has this configuration and has seen ``before``."""

    config: str
    given: dict[str, Any]
    before: Callable[[Home], object] = lambda home: None
    inside: bool = False
    """Asked by the agent of job 1, whose token is 7."""


def fill(**given: Any) -> Callable[[Home], object]:
    return lambda home: clawq.enqueue(command=["true"], **given)


def measured(home: Home) -> None:
    """A real supervisor runs a job, which is all that is known of its speed; then a hundred wait."""
    clawq.enqueue(command=["sleep", "0.3"])
    Fleet(home).run_until_idle()
    list(clawq.enqueue_many([{"command": ["true"]}] * 100))


def family(home: Home) -> None:
    """Job 2 is a child of job 1."""
    clawq.enqueue(command=["true"])
    clawq.enqueue(command=["true"], parent=1)


def running(home: Home) -> None:
    clawq.enqueue(command=["true"])
    rows(home, "UPDATE jobs SET state = 'starting', token = 7 WHERE id = 1")


def without_browsers(home: Home) -> None:
    """clawq.toml is not taken with a limit of 0, so that only a form from elsewhere can have it."""
    clawq.enqueue(command=["true"])
    rows(home, "UPDATE config SET body = json_set(body, '$.resources.browser.limit', 0)")


CASES = {
    "expired": Case("", {"stale_after": "0s"}),
    "deadline_passed": Case("", {"deadline": "2020-01-01T00:00:00Z"}),
    "never_fits": Case("", {"needs": "browser"}, without_browsers),
    "queue_full": Case("[limits]\nmax_queued = 1\n", {}, fill()),
    "tenant_queue_full": Case("[tenants.acme]\nmax_queued = 1\n", {"tenant": "acme"}, fill(tenant="acme")),
    "kind_queue_full": Case("[kinds.k]\nqueue_cap = 1\n", {"kind": "k"}, fill(kind="k")),
    "held_full": Case("[limits]\nmax_held = 1\n", {"hold": True}, fill(hold=True)),
    "over_capacity": Case('[kinds.now]\non_busy = "reject"\n', {"kind": "now"}),
    "would_expire": Case("[kinds.k]\nrefuse_hopeless = true\n", {"kind": "k", "stale_after": "2s"}, measured),
    "too_deep": Case("[limits]\nmax_depth = 1\n", {"parent": 2}, family),
    "too_many_descendants": Case("[limits]\nmax_descendants = 1\n", {"parent": 1}, family),
    "not_allowed": Case("", {"tenant": "another"}, running, inside=True),
}
ELSEWHERE = {"database_busy"}
"""Provoked by a test of its own, below."""


def test_every_reason_of_the_queue_is_provoked_here() -> None:
    assert set(CASES) | ELSEWHERE == errors.REFUSED_FOR_GOOD | errors.REFUSED_FOR_NOW


def words(given: dict[str, Any]) -> list[str]:
    flags = [
        word
        for key, value in given.items()
        if key != "kind"
        for word in (f"--{key.replace('_', '-')}", *([] if value is True else [str(value)]))
    ]
    return [
        "enqueue",
        *([given["kind"]] if "kind" in given else []),
        *flags,
        "--dedupe-key",
        "key",
        "--",
        "true",
    ]


def check(told: dict[str, Any], reason: str, code: int) -> None:
    assert list(told) == KEYS
    assert (told["outcome"], told["job_id"], told["reason"]) == ("rejected", None, reason)
    if code == 75:
        assert isinstance(told["retry_after_s"], int)
        assert 1 <= told["retry_after_s"] <= 4320
        assert told["safe_to_retry"] is True
    else:
        assert (told["retry_after_s"], told["safe_to_retry"]) == (None, False)


@pytest.mark.parametrize("reason", CASES)
def test_a_refusal_is_the_same_from_the_command_line_a_batch_and_python(
    home: Home, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[reason]
    configure(home, case.config)
    case.before(home)
    if case.inside:
        monkeypatch.setenv("CLAWQ_JOB_ID", "1")
        monkeypatch.setenv("CLAWQ_TOKEN", "7")
    code = 65 if reason in errors.REFUSED_FOR_GOOD else 75
    jobs = rows(home, "SELECT count(*) FROM jobs") if os.path.exists(home.db) else [(0,)]

    check(answer(*words(case.given), code=code), reason, code)

    line = json.dumps(case.given | {"command": ["true"], "dedupe_key": "key"}).encode()
    check(answer("enqueue", "--batch", "-", stdin=line, code=code), reason, code)

    with pytest.raises(clawq.Refused) as refused:
        clawq.enqueue(command=["true"], dedupe_key="key", **case.given)
    error = refused.value
    receipt = {key: getattr(clawq.client.refusal(error), key) for key in KEYS}
    check(receipt, reason, code)
    assert (error.exit_code, error.reason) == (code, reason)
    assert ": " in str(error)

    # Nothing was kept: no job, and the key is free.
    assert rows(home, "SELECT count(*) FROM jobs") == jobs
    assert rows(home, "SELECT count(*) FROM dedupe WHERE key = 'key'") == [(0,)]
    assert rows(home, "SELECT count FROM refusals WHERE reason = ?", reason) == [(3,)]


@pytest.mark.parametrize(
    ("config", "given", "code", "reason"),
    [
        ("", ["nope"], 2, "usage"),
        ("", ["--payload", "{", "--", "true"], 2, "usage"),
        ("", ["--", "no-such-program"], 2, "usage"),
        ("[limits]\nmax_quued = 1\n", ["--", "true"], 78, "config"),
    ],
)
def test_what_is_wrong_with_the_question_is_data_too(
    home: Home, config: str, given: list[str], code: int, reason: str
) -> None:
    configure(home, config)
    check(answer("enqueue", *given, code=code), reason, code)


def test_an_agent_whose_job_is_another_attempts_is_told_to_stop(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(home)
    monkeypatch.setenv("CLAWQ_JOB_ID", "1")
    monkeypatch.setenv("CLAWQ_TOKEN", "6")
    check(answer("enqueue", "--", "true", code=77), "lease_lost", 77)
    with pytest.raises(clawq.LeaseLost, match="stop"):
        clawq.enqueue(command=["true"])


def test_a_database_that_is_not_ours_is_data_too(home: Home) -> None:
    os.makedirs(home.data)
    Path(home.db).write_bytes(b"my diary\n" * 500)
    check(answer("enqueue", "--", "true", code=74), "storage", 74)


def test_a_locked_database_is_a_refusal(
    home: Home, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clawq.enqueue(command=["true"])
    monkeypatch.setattr("clawq.store.connection.open_db.__defaults__", (50, False))
    holder = apsw.Connection(home.db)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(clawq.Refused) as refused:
            command.main(["--json", "--", "true"])
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert refused.value.exit_code == 75
    check(json.loads(capfd.readouterr().out), "database_busy", 75)


# ---------------------------------------------------------------- a loop that does not wait


class Counting(apsw.VFS):
    """The usual files of SQLite, with the syncs counted."""

    def __init__(self) -> None:
        self.syncs = 0
        super().__init__("counting", base="unix", makedefault=True)

    def xOpen(self, name: Any, flags: Any) -> Any:
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, vfs: Counting, name: Any, flags: Any) -> None:
        self._vfs = vfs
        super().__init__("unix", name, flags)

    def xSync(self, flags: int) -> None:
        self._vfs.syncs += 1
        super().xSync(flags)


@contextmanager
def counted_syncs() -> Iterator[Counting]:
    vfs = Counting()
    try:
        yield vfs
    finally:
        vfs.unregister()


def until_full() -> int:
    """How many are accepted before the first refusal."""
    accepted = 0
    while True:
        try:
            clawq.enqueue(command=["true"])
        except clawq.Refused:
            return accepted
        accepted += 1


def again(times: int) -> None:
    for number in range(times):
        with pytest.raises(clawq.Refused, match="the queue is full"):
            clawq.enqueue(command=["true"], dedupe_key=f"try-{number}", payload={"n": number})


def test_a_careless_loop_costs_the_queue_nothing_and_passes_no_cap(home: Home) -> None:
    """Enqueue, refused, at once again, a thousand times, in one process and with a key of its own each."""
    configure(home, "[limits]\nmax_queued = 3\n")
    assert until_full() == 3
    size = _size(home)
    again(1_000)
    assert rows(home, "SELECT count(*) FROM jobs") == [(3,)]
    assert rows(home, "SELECT count(*) FROM dedupe") == [(0,)]
    assert rows(home, "SELECT reason, count FROM refusals") == [("queue_full", 1_001)]
    assert _size(home) - size < 8 << 20


def test_a_refusal_waits_for_no_disk(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 3\n")
    with counted_syncs() as vfs:
        until_full()
        assert vfs.syncs >= 3  # accepted jobs are on the disk
        vfs.syncs = 0
        again(50)
        assert vfs.syncs == 0


def _size(home: Home) -> int:
    return sum(path.stat().st_size for path in Path(home.data).glob("clawq.db*"))


def test_nor_do_many_such_loops_on_the_command_line_at_once(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 3\n")
    told: Counter[int] = Counter()
    for _ in range(2):
        told.update(done.returncode for done in at_once([["enqueue", "--", "true"]] * 12))
    assert told == {0: 3, 75: 21}
    assert rows(home, "SELECT count(*) FROM jobs") == [(3,)]
    assert rows(home, "SELECT reason, count FROM refusals") == [("queue_full", 21)]


def test_invented_tenants_do_not_grow_what_is_remembered_without_end(home: Home) -> None:
    configure(home, "[limits]\nmax_queued = 1\n")
    clawq.enqueue(command=["true"])
    jobs = ({"command": ["true"], "tenant": f"t{number}"} for number in range(3_000))
    assert {receipt.reason for receipt in clawq.enqueue_many(jobs)} == {"queue_full"}
    assert rows(home, "SELECT count(*), sum(count) FROM refusals") == [(1_001, 3_000)]
