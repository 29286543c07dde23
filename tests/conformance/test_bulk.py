"""Jobs written together leave the same rows, events and counts as jobs written one by one."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawq import lines
from clawq.client import Producer, Receipt
from clawq.errors import ClawqError
from clawq.paths import Home
from clawq.store import bulk
from tests.producers import configure
from tests.rows import check_books, put

CONFIG = """
[limits]
max_queued = 80
max_held = 3
[kinds.small]
command = ["true"]
queue_cap = 4
[kinds.coalescing]
command = ["true"]
queue_cap = 3
on_full = "coalesce"
[kinds.dropping]
command = ["true"]
queue_cap = 3
on_full = "drop_oldest"
[kinds.filled]
command = ["echo", "{field:id}"]
[kinds.light]
command = ["true"]
[kinds.busy]
command = ["true"]
on_busy = "degrade"
degrade_to = "light"
"""

MIXED: list[dict[str, Any]] = [
    {"command": ["true"], "payload": {"n": 1}},
    {"command": ["true"], "payload": {"n": 2}},
    {"command": ["echo", "a"]},
    {"command": ["echo", "b"], "dedupe_key": "k1"},
    {"command": ["echo", "c"], "dedupe_key": "k1"},
    {"command": ["echo", "c"], "dedupe_key": "k2", "dedupe_scope": "active"},
    {"command": ["echo", "c"], "dedupe_key": "k2", "dedupe_scope": "active"},
    {"command": ["echo", "c"], "dedupe_key": None, "payload": None},
    *({"kind": "small", "payload": n} for n in range(6)),
    *({"kind": "coalescing", "payload": n % 2} for n in range(6)),
    *({"kind": "dropping", "payload": {"n": n}} for n in range(6)),
    *({"kind": "busy", "payload": {"n": n}} for n in range(3)),
    {"kind": "filled", "payload": {"id": 1}},
    {"kind": "filled", "payload": {"n": 1}},
    {"kind": "filled", "payload": {"id": 2}},
    *({"command": ["true"], "exclusive": "x", "needs": ["shell"]} for _ in range(3)),
    {"command": ["true"], "hold": True},
    {"command": ["true"], "delay": "1h", "deadline": "2h"},
    {"command": ["true"], "stale_after": "1h", "priority": 3, "band": "critical", "tenant": "t"},
    {"command": ["no such program"]},
    {"command": ["true", 7]},
    {"command": ["true"], "env": {"payload": "x", "command": "y"}},
    {"env": {"payload": "x"}, "command": ["true"], "payload": {"payload": 1}},
    *(
        {"command": ["echo", f"é{n}"], "payload": {"n": n, "t": "\x1e ü"}, "dedupe_key": f"ß {n % 4}"}
        for n in range(6)
    ),
    *({"command": ["echo", "d"], "dedupe_key": f"d {n % 5}"} for n in range(6)),
    *({"command": ["true"], "hold": True} for _ in range(3)),
    *({"command": ["true"], "payload": n} for n in range(40)),
]


def _state(db: apsw.Connection) -> dict[str, list[Any]]:
    jobs = (
        "id, kind, tenant, band, priority, needs, state, reason, parked, command, payload, env, asked_kind,"
        " dedupe_key, dedupe_scope, exclusive, rank - created_at, run_after - created_at,"
        " ready_at - created_at,"
        " stale_at - created_at, deadline_at - created_at, start_by"
    )
    return {
        "jobs": db.execute(f"SELECT {jobs} FROM jobs ORDER BY id").fetchall(),
        "events": db.execute(
            "SELECT job_id, from_state, to_state, reason FROM events ORDER BY job_id, id"
        ).fetchall(),
        "tally": db.execute("SELECT * FROM tally ORDER BY 1, 2, 3, 4, 5").fetchall(),
        "dedupe": db.execute("SELECT * FROM dedupe ORDER BY 1, 2, 3").fetchall(),
    }


def _told(answer: Receipt | ClawqError) -> str:
    return (
        answer.reason
        if isinstance(answer, ClawqError)
        else f"{answer.outcome} {answer.job_id} {answer.state}"
    )


@pytest.fixture(params=[True, False], ids=["carray", "no carray"])
def _with_and_without_carray(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    if not request.param:
        monkeypatch.delattr(apsw, "carray")
    importlib.reload(bulk)
    yield
    monkeypatch.undo()
    importlib.reload(bulk)


@pytest.mark.usefixtures("_with_and_without_carray")
@pytest.mark.parametrize(("repeat", "colon"), [(1, ":"), (3, ":"), (3, " : ")])  # the last cannot be cut
def test_written_together_as_one_by_one(
    home: Home, repeat: int, colon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clawq.client.time.time_ns", lambda: 1_800_000_000_000_000_000)
    configure(home, CONFIG)
    texts = [json.dumps(each, separators=(",", colon), ensure_ascii=False) for each in MIXED * repeat]
    with Producer(home) as producer:
        alone = [producer.enqueue_many([json.loads(text)])[0] for text in texts]
        one_by_one = _state(producer.intake.db)
        check_books(producer.intake.db)
        producer.intake.db.execute("DELETE FROM jobs; DELETE FROM dedupe; DELETE FROM sqlite_sequence")
        reader, batch = lines.Reader(), []
        for text in texts:
            reader.read(text.encode(), batch)
        together = producer.enqueue_many(batch)
        assert [_told(each) for each in together] == [_told(each) for each in alone]
        assert _state(producer.intake.db) == one_by_one
        check_books(producer.intake.db)


def test_a_line_too_deep_for_sqlite_stops_none_of_the_others(home: Home) -> None:
    configure(home, "")
    quotes = '["[[{\\"[' + "[" * 1_000 + '"]'
    texts = ["1", "[" * 1_000 + "]" * 1_000, '{"a":' * 1_001 + "1" + "}" * 1_001, quotes]
    reader, batch = lines.Reader(), []
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2_000)  # newer Pythons have no need of it
    try:
        for text in texts:
            reader.read(b'{"command":["true"],"payload":%s}' % text.encode(), batch)
        with Producer(home) as producer:
            answers = producer.enqueue_many(batch)
            (from_python,) = producer.enqueue_many([{"command": ["true"], "payload": json.loads(texts[2])}])
    finally:
        sys.setrecursionlimit(limit)
    assert [_told(each).split()[0] for each in answers] == ["queued", "queued", "usage", "queued"]
    assert _told(from_python) == "usage"


def test_nobody_can_commit_without_having_paid(db: apsw.Connection) -> None:
    db.execute("BEGIN IMMEDIATE; INSERT INTO bulk (first_id) VALUES (1)")
    put(db)
    with pytest.raises(apsw.ConstraintError):
        db.execute("COMMIT")
    db.execute("DELETE FROM bulk; COMMIT")
    assert db.execute("SELECT from_state, to_state FROM events").fetchall() == [("new", "queued")]


def test_an_illegal_first_state_does_not_come_in_with_the_crowd(db: apsw.Connection) -> None:
    db.execute("BEGIN IMMEDIATE; INSERT INTO bulk (first_id) VALUES (1)")
    put(db)
    put(db, state="unknown")
    with pytest.raises(apsw.ConstraintError, match="illegal transition"):
        db.execute("DELETE FROM bulk")
    db.execute("ROLLBACK")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["payload", '"payload":', "x", "\\", '"']),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["payload", "command", "n"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_NAMES = st.sampled_from(["payload", "dedupe_key", "command", "kind", "env", "pay\\load", "tenant"])


@given(st.dictionaries(_NAMES, _VALUES, max_size=6), st.sampled_from([(",", ":"), (", ", ": ")]))
def test_a_line_that_was_cut_is_still_what_was_written(
    line: dict[str, Any], separators: tuple[str, str]
) -> None:
    text = json.dumps(line, separators=separators)
    found = lines.cut(text, "")
    if found is None or not lines.is_well_cut(found[0]):
        return
    whole = lines.whole(found[0])
    assert whole is not None
    if isinstance(whole.get("payload"), bytes):
        whole["payload"] = json.loads(whole["payload"])  # type: ignore[arg-type]  # it was looked at
    assert whole == line


def _each(read: list[Any]) -> list[Any]:
    """What was read, line by line again."""
    found: list[Any] = []
    for one in read:
        if isinstance(one, tuple):
            text, *own = one
            for at in range(max(1, *map(len, own))):
                job = lines.whole((text, *(values[at] if values else None for values in own)))
                assert job is not None
                if isinstance(job.get("payload"), bytes):
                    job["payload"] = json.loads(job["payload"])  # type: ignore[arg-type]  # it was looked at
                found.append(job)
        else:
            found.append("bad" if isinstance(one, ClawqError) else one)
    return found


_SIMILAR = st.tuples(
    st.sampled_from(
        [
            '{"command":["true"],"payload":%s}',
            '{"payload": %s, "kind": "k"}',
            '{"payload": %s, "dedupe_key": "a"}',
            '{"env":{"payload":%s},"payload":1}',
            '{"command":["echo","%s"]}',
            '{"command":[%s,"a"],"payload":2,"dedupe_key":"k"}',
            '{"dedupe_key":%s,"payload":3,"command":["true"]}',
            '{"kind":"k"}%.0s',
            "%s",
        ]
    ),
    st.sampled_from(
        ["1", "null", '"x"', '{"n": 2}', "1,2", '1,"kind":"k"', '1}, {"payload":1', '"\\"', "NaN", "", "é "]
    ),
)


@example([('{"env":{"payload":%s},"payload":1}', "null"), ('{"env":{"payload":%s},"payload":1}', "1")])
@given(st.lists(_SIMILAR, min_size=1, max_size=12))
def test_lines_that_are_read_together_are_what_each_is_alone(parts: list[tuple[str, str]]) -> None:
    texts = [form % value for form, value in parts]
    reader = lines.Reader()
    together: list[Any] = []
    alone: list[Any] = []
    for text in texts:
        reader.read(text.encode(), together)
        lines.Reader().read(text.encode(), alone)
    assert _each(together) == _each(alone)
    for text, job in zip(texts, _each(together), strict=True):
        assert job == "bad" or job == json.loads(text)


@pytest.mark.parametrize(
    "text", ['{"payload": NaN}', '{"payload": }', '{"payload"', '{"command": "x"}', '{"dedupe_key": 1}']
)
def test_what_cannot_be_cut_is_read_as_a_whole(text: str) -> None:
    assert lines.cut(text, "") is None


@pytest.mark.parametrize(
    "text", ['{"payload": 1, "p\\u0061yload": null}', '{"x\\"payload": 1, "p\\u0061yload": null}']
)
def test_a_later_value_of_the_same_name_counts(text: str) -> None:
    found = lines.cut(text, "")
    assert found is not None
    assert not lines.is_well_cut(found[0])


def test_a_broken_line_is_found_when_its_shape_is_new() -> None:
    found = lines.cut('{"payload": 1', "")
    assert found is not None
    with pytest.raises(ValueError):
        lines.is_well_cut(found[0])
